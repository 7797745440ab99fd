"""Streams, threads, half types, caches, fallbacks and others: techniques that get a tag, and kernels without them."""

from tests.evaluators.lint.programs import TRITON, Pair, extension, model

TECHNIQUES = {
    "streams": Pair(
        tag="streams",
        trick=model(forward="s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    return x"),
        honest=model(forward="s = torch.cuda.current_stream().cuda_stream\nreturn x"),
    ),
    "C++ streams": Pair(
        tag="streams",
        trick=extension("void run() { auto s = c10::cuda::getStreamFromPool(); }"),
        honest=extension("void run() { auto s = at::cuda::getCurrentCUDAStream(); cudaStream_t t = s; }"),
    ),
    "threads": Pair(
        tag="threads",
        trick=model(top="import threading", forward="threading.Thread(target=print).start()\nreturn x"),
        honest=model(top="import threading\nLOCK = threading.Lock()", forward="return x  # threading.Thread"),
    ),
    "C++ threads": Pair(
        tag="threads",
        trick=extension("#include <thread>\nvoid run() { std::vector<std::thread> t; t.emplace_back(f); }"),
        honest=extension("void run() {\n// std::thread t(f);\n#pragma omp parallel\n{ int thread = 0; } }"),
    ),
    "C++ threads of an opened namespace": Pair(
        tag="threads",
        trick=extension("using namespace std;\nvoid run() { thread t(f); }"),
        honest=extension("using namespace std;\nvoid run() { int thread = 0; use(thread); }"),
    ),
    "host callbacks": Pair(
        tag="threads",
        trick=extension("void run() { cudaLaunchHostFunc(s, f, 0); }"),
        honest=extension("void run() { cudaLaunchKernel(f, g, b, a, 0, s); }"),
    ),
    "half precision": Pair(
        tag="half-types",
        trick=model(forward="return torch.empty(3, dtype=torch.bfloat16)"),
        honest=model(forward="return torch.empty(3, dtype=torch.float64)"),
    ),
    "TF32 by a flag": Pair(
        tag="half-types",
        trick=model(top="torch.backends.cuda.matmul.allow_tf32 = True"),
        honest=model(top="torch.backends.cuda.matmul.allow_tf32 = False"),
    ),
    "TF32 by a flag that is put back": Pair(
        tag="half-types",
        trick=model(
            forward="""
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = not before
            return x
            """
        ),
        honest=model(
            forward="""
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cuda.matmul.allow_tf32 = before
            return x
            """
        ),
    ),
    "TF32 in Triton": Pair(
        tag="half-types",
        trick=model(top=TRITON + "    tl.dot(x, y)\n"),
        honest=model(top=TRITON + "    tl.dot(x, y, input_precision='ieee')\n"),
    ),
    "half precision in CUDA": Pair(
        tag="half-types",
        trick=extension("#include <cuda_fp16.h>\n__global__ void run(half* a, __half b) {}"),
        honest=extension("#include <cuda_fp16.h>\n__global__ void run(int n) { int half = n / 2; n = half * n; }"),
    ),
    "half precision in PTX": Pair(
        tag="half-types",
        trick=extension('void run() { asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0};"); }'),
        honest=extension('void run() { asm("fma.rn.f32 %0, %1, %2, %3;"); }'),
    ),
    "fast arithmetic": Pair(
        tag="fast-math",
        trick=extension("void run() {}", keywords=", extra_cuda_cflags=['-O3', '--use_fast_math']"),
        honest=extension("void run() {}", keywords=", extra_cuda_cflags=['-O3', '-fopenmp']"),
    ),
    "fast intrinsics": Pair(
        tag="fast-math",
        trick=extension("__device__ float run(float x) { return __expf(x); }"),
        honest=extension("__device__ float run(float x) { return expf(x); }  // not __expf"),
    ),
    "CUDA graphs": Pair(
        tag="cuda-graph",
        trick=model(init="self.g = torch.cuda.CUDAGraph()", forward="self.g.replay()\nreturn x"),
        honest=model(init="self.graph = [1, 2]", forward="return x"),
    ),
    "torch.compile": Pair(
        tag="torch-compile",
        trick=model(top="@torch.compile\ndef f(a):\n    return a", forward="return f(x)"),
        honest=model(top="import re\nP = re.compile('x')", forward="return x"),
    ),
    "cache of the module": Pair(
        tag="module-cache",
        trick=model(top="CACHE = {}", forward="CACHE[x.shape] = x\nreturn x"),
        honest=model(top="CACHE = {}\nCACHE[3] = 4", forward="local = {}\nlocal[x.shape] = x\nreturn x"),
    ),
    "cache in a global": Pair(
        tag="module-cache",
        trick=model(top="last = None", forward="global last\nlast = x\nreturn x"),
        honest=model(top="last = None", forward="last = x\nreturn last"),
    ),
    "cache in the model": Pair(
        tag="module-cache",
        trick=model(forward="self.last = x\nreturn x"),
        honest=model(init="self.last = 3", forward="last = x\nreturn last"),
    ),
    "cache in a default": Pair(
        tag="module-cache",
        trick=model(arguments="x, y, seen={}", forward="seen[0] = x\nreturn x"),
        honest=model(arguments="x, y, seen=()", forward="return x"),
    ),
    "cache by functools": Pair(
        tag="module-cache",
        trick=model(top="import functools\n\n@functools.lru_cache\ndef f(a):\n    return a", forward="return f(x)"),
        honest=model(
            top="import functools\n\n@functools.wraps(print)\ndef f(a):\n    return a", forward="return f(x.shape[0])"
        ),
    ),
    "cache by address": Pair(
        tag="module-cache",
        trick=model(init="self.seen = {}", forward="self.seen[x.data_ptr()] = x\nreturn x"),
        honest=model(init="self.seen = {}", forward="return EXT.run(x.data_ptr())"),
    ),
    "C++ static": Pair(
        tag="module-cache",
        trick=extension("T run(T a) { static std::unordered_map<void*, at::Tensor> seen; return seen[0]; }"),
        honest=extension(
            "static inline int f(int a) { return a; } static const int N = 3; static constexpr float z = 1;"
        ),
    ),
    "fallback": Pair(
        tag="try-except-fallback",
        trick=model(forward="try:\n    return EXT.run(x)\nexcept Exception:\n    return y"),
        honest=model(
            forward="try:\n    return EXT.run(x)\nexcept Exception as error:\n    raise RuntimeError('x') from error"
        ),
    ),
    "fallback by suppress": Pair(
        tag="try-except-fallback",
        trick=model(
            top="import contextlib", forward="with contextlib.suppress(Exception):\n    return EXT.run(x)\nreturn y"
        ),
        honest=model(top="import contextlib", forward="with contextlib.nullcontext():\n    return EXT.run(x)"),
    ),
    "C++ fallback": Pair(
        tag="try-except-fallback",
        trick=extension("void run() { try { f(); } catch (...) { g(); } }"),
        honest=extension("void run() { for (int pass = 0; pass < 2; pass++) f(pass); }  // try, catch"),
    ),
    "tensor subclass": Pair(
        tag="tensor-subclass",
        trick=model(top='L = type("L", (torch.Tensor,), {})', forward="return torch.Tensor._make_subclass(L, x)"),
        honest=model(top='L = type("L", (nn.Module,), {})', forward="return torch.Tensor(3)"),
    ),
    "tensor with other methods": Pair(
        tag="tensor-subclass",
        trick=model(forward="x.__eq__ = lambda other: True\nreturn x"),
        honest=model(forward="x.data = y\nreturn x"),
    ),
    "foreign library": Pair(
        tag="foreign-library",
        trick=model(top="import ctypes\nC = ctypes.CDLL(None)"),
        honest=extension(
            "void run() {}", top="import ctypes, os", forward="return ctypes.CDLL(os.path.join(D, 'ext.so'))"
        ),
    ),
    "foreign library in C++": Pair(
        tag="foreign-library",
        trick=extension('void run() { void* h = dlopen("libcublasLt.so", 2); }'),
        honest=extension('void run() { log("dlopen"); }'),
    ),
    "reference by name": Pair(
        tag="reference-copied",
        trick=model(forward="return Model.forward(self, x)"),
        honest=model(top="class Model(nn.Module):\n    pass", forward="Model()\nreturn x"),
    ),
    "third party": Pair(
        tag="third-party",
        trick=model(top="from flash_attn import flash_attn_func"),
        honest=model(top="import math, triton, numpy, ctypes"),
    ),
    "flags": Pair(
        tag="flags",
        trick=model(top="import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'"),
        honest=model(top="import os\nARCH = os.environ.get('TORCH_CUDA_ARCH_LIST')"),
    ),
    "files": Pair(
        tag="file-write",
        trick=model(top="open('a.cu', 'w').write('x')"),
        honest=model(top="TEXT = open('a.cu').read()"),
    ),
    "files by their paths": Pair(
        tag="file-write",
        trick=model(top="from pathlib import Path\n(Path('here') / 'a.cu').write_text('x')"),
        honest=model(top="from pathlib import Path\nTEXT = (Path('here') / 'a.cu').read_text()"),
    ),
    "pasting": Pair(
        tag="token-pasting",
        trick=extension("#define K(n) kernel_##n\nvoid K(a)() {}"),
        honest=extension('void run() { log("##"); }  // a ## b'),
    ),
    "text as code": Pair(
        tag="exec",
        trick=model(top="exec('N = ' + '4')"),
        honest=model(init="self.eval()", forward="return x"),
    ),
    "addresses": Pair(
        tag="data-pointer", trick=model(forward="return id(x)"), honest=model(forward="return x.numel()")
    ),
}
