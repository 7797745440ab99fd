"""Small kernel files that look alike: one hides something, its twin is honest."""

import textwrap
from dataclasses import dataclass


def model(*, top: str = "", init: str = "", forward: str = "return x", arguments: str = "x, y") -> str:
    """A ModelNew file with these statements."""
    parts = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n",
        textwrap.dedent(top).strip() + "\n",
        "\nclass ModelNew(nn.Module):",
        "    def __init__(self):\n        super().__init__()",
        textwrap.indent(textwrap.dedent(init).strip(), " " * 8),
        f"\n    def forward(self, {arguments}):",
        textwrap.indent(textwrap.dedent(forward).strip(), " " * 8) + "\n",
    ]
    return "\n".join(part for part in parts if part.strip())


def extension(code: str, *, forward: str = "return EXT.run(x, y)", top: str = "", keywords: str = "") -> str:
    """A ModelNew file whose kernel is this C++ or CUDA."""
    return model(
        top=f"""
from torch.utils.cpp_extension import load_inline
{textwrap.dedent(top)}
SOURCE = r'''
{textwrap.dedent(code)}
'''
EXT = load_inline(name="ext", cpp_sources=SOURCE, functions=["run"]{keywords})
""",
        forward=forward,
    )


TRITON = """
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What must be seen in a kernel, and must not be seen in one that looks like it."""

    #: A tag that the first has and the second has not.
    tag: str
    trick: str
    honest: str
    #: Whether the trick is refused, by the rule of the same name.
    refused: bool = False


MATMUL = "return torch.mm(x, y)"

PAIRS = {
    # Products under other names, and things that only look like them.
    "alias of the module": Pair(
        tag="library-heavy",
        trick=model(top="import torch as t", forward="return t.mm(x, y)"),
        honest=model(top="import torch as t", forward="return t.empty(3)"),
    ),
    "alias of the function": Pair(
        tag="library-heavy",
        trick=model(top="from torch import mm as f", forward="return f(x, y)"),
        honest=model(top="from math import prod as f", forward="return f(x.shape)"),
    ),
    "alias by assignment": Pair(
        tag="library-heavy",
        trick=model(top="g = torch\nh = g.bmm", forward="k = h\nreturn k(x, y)"),
        honest=model(top="g = torch\nh = g.empty", forward="k = h\nreturn k(3)"),
    ),
    "star import": Pair(
        tag="library-heavy",
        trick=model(top="from torch import *", forward="return matmul(x, y)"),
        honest=model(top="from torch import *\n\ndef matmul(a, b):\n    return a", forward="return matmul(x, y)"),
    ),
    "getattr with parts": Pair(
        tag="library-heavy",
        trick=model(forward='return getattr(torch, "m" + "m")(x, y)'),
        honest=model(forward='return torch.empty(2, dtype=getattr(torch, "float" + "32"))'),
    ),
    "getattr with a computed name": Pair(
        tag="library-heavy",
        trick=model(forward='return getattr(torch, "".join(["mat", "mul"]))(x, y)'),
        honest=model(forward='return torch.empty(getattr(self, "".join(["si", "ze"])))'),
    ),
    "dictionary of the module": Pair(
        tag="library-heavy",
        trick=model(forward='return torch.__dict__["mm"](x, y)'),
        honest=model(forward='return {"mm": torch.empty}["mm"](3)'),
    ),
    "vars": Pair(
        tag="library-heavy",
        trick=model(forward='return vars(torch)["mm"](x, y)'),
        honest=model(forward='return vars(torch)["empty"](3)'),
    ),
    "imported by a function": Pair(
        tag="library-heavy",
        trick=model(forward='return __import__("tor" + "ch").mm(x, y)'),
        honest=model(forward='return __import__("tor" + "ch").empty(3)'),
    ),
    "importlib": Pair(
        tag="library-heavy",
        trick=model(
            top="import importlib", forward='return importlib.import_module("torch.nn.functional").linear(x, y)'
        ),
        honest=model(top="import importlib", forward='return importlib.import_module("math").prod(x.shape)'),
    ),
    "dispatcher": Pair(
        tag="library-heavy",
        trick=model(forward="return torch.ops.aten.mm.default(x, y)"),
        honest=model(top='torch.ops.load_library("own.so")', forward="return torch.ops.own.mm.default(x, y)"),
    ),
    "operator": Pair(
        tag="library-heavy",
        trick=model(forward="return x @ y"),
        honest=model(top=TRITON.replace("tl.load(x + at, mask=at < n)", "tl.load(x) @ tl.load(y)")),
    ),
    "operator in place": Pair(
        tag="library-heavy", trick=model(forward="x @= y\nreturn x"), honest=model(forward="n = 3\nn *= 2\nreturn x")
    ),
    "operator by its method": Pair(
        tag="library-heavy",
        trick=model(forward="return x.__matmul__(y)"),
        honest=model(forward="return x.__getitem__(0)"),
    ),
    "method": Pair(
        tag="library-heavy",
        trick=model(forward="return x.matmul(y)"),
        honest=extension("void run() {}", forward="return EXT.matmul(x, y)"),
    ),
    "method of something unknown": Pair(
        tag="library-heavy",
        trick=model(top="def f(a):\n    return a.bmm(a)", forward="return f(*self.args)"),
        honest=model(
            top="import ctypes\n\ndef build():\n    return ctypes.CDLL(str(PATH))\n\nMATMUL = build().matmul",
            forward="return MATMUL(x, y)",
        ),
    ),
    "method by name": Pair(
        tag="library-heavy",
        trick=model(top="import operator", forward='return operator.methodcaller("m" "m", y)(x)'),
        honest=model(top="import operator", forward='return operator.methodcaller("t")(x)'),
    ),
    "table of operations": Pair(
        tag="library-heavy",
        trick=model(top="OPS = {'a': torch.mm}", forward="return OPS['a'](x, y)"),
        honest=model(top="OPS = {'a': torch.empty}", forward="return OPS['a'](3)"),
    ),
    "partial": Pair(
        tag="library-heavy",
        trick=model(
            top="from functools import partial",
            init="self.f = partial(torch.mm, out=None)",
            forward="return self.f(x, y)",
        ),
        honest=model(
            top="from functools import partial", init="self.f = partial(torch.empty, 3)", forward="return self.f()"
        ),
    ),
    "submodule": Pair(
        tag="library-heavy",
        trick=model(init="self.l = nn.Linear(3, 3)", forward="return self.l(x)"),
        honest=model(init="self.l = nn.Linear(3, 3)", forward="return self.l.weight"),
    ),
    "submodule in a container": Pair(
        tag="library-heavy",
        trick=model(init="self.s = nn.Sequential(nn.Linear(3, 3))", forward="return self.s(x)"),
        honest=model(init="self.s = nn.Sequential(nn.Linear(3, 3))", forward="return self.s[0].weight"),
    ),
    "submodule handed to a helper": Pair(
        tag="library-heavy",
        trick=model(
            top="def f(m, a):\n    return m(a)", init="self.c = nn.Conv2d(3, 3, 1)", forward="return f(self.c, x)"
        ),
        honest=model(
            top="def f(m, a):\n    return m.weight", init="self.c = nn.Conv2d(3, 3, 1)", forward="return f(self.c, x)"
        ),
    ),
    "inherited forward": Pair(
        tag="library-heavy",
        trick="import torch.nn as nn\n\n\nclass ModelNew(nn.Linear):\n    pass\n",
        honest=model().replace("(nn.Module)", "(nn.Linear)"),
    ),
    "super's forward": Pair(
        tag="library-heavy",
        trick=model().replace("(nn.Module)", "(nn.Conv1d)").replace("return x", "return super().forward(x)"),
        honest=model().replace("(nn.Module)", "(nn.Conv1d)").replace("return x", "return super().extra_repr()"),
    ),
    "forward of a class": Pair(
        tag="library-heavy",
        trick=model(init="self.l = nn.Linear(3, 3)", forward="return nn.Linear.forward(self.l, x)"),
        honest=model(init="self.l = nn.Linear(3, 3)", forward="assert isinstance(self.l, nn.Linear)\nreturn x"),
    ),
    "helper of the file": Pair(
        tag="library-heavy",
        trick=model(top="def helper(a, b):\n    return torch.mm(a, b)", forward="return helper(x, y)"),
        honest=model(
            top="def fold(a, b):\n    return torch.mm(a, b)", init="self.w = fold(torch.ones(2, 2), torch.ones(2, 2))"
        ),
    ),
    "helper kept by the constructor": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper(a, b):\n    return torch.mm(a, b)", init="self.f = helper", forward="return self.f(x, y)"
        ),
        honest=model(
            top="def helper(a, b):\n    return torch.mm(a, b)", init="self.w = helper(*FIRST)", forward="return self.w"
        ),
    ),
    "helper made by another": Pair(
        tag="library-heavy",
        trick=model(
            top="def make():\n    def helper(a, b):\n        return torch.mm(a, b)\n    return helper",
            init="self.f = make()",
            forward="return self.f(x, y)",
        ),
        honest=model(
            top="def make():\n    def helper(a, b):\n        return torch.mm(a, b)\n    return helper(*FIRST)",
            init="self.w = make()",
            forward="return self.w",
        ),
    ),
    "helper as a hook": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper(module, given, out):\n    return torch.mm(*given)",
            init="self.register_forward_hook(helper)",
        ),
        honest=model(top="def helper(module, given, out):\n    return out", init="self.register_forward_hook(helper)"),
    ),
    "helper that is a generator": Pair(
        tag="library-heavy",
        trick=model(
            top="def helper():\n    c = None\n    while True:\n        c = torch.mm(*(yield c))",
            init="self.g = helper()\nnext(self.g)",
            forward="return self.g.send((x, y))",
        ),
        honest=model(
            top="def helper():\n    return torch.mm(*FIRST)",
            init="self.w = helper()",
            forward="return self.w",
        ),
    ),
    "after an integer division": Pair(
        tag="library-heavy",
        trick=model(forward="n = 4 // 2; return torch.matmul(x, y)"),
        honest=model(forward="n = 4 // 2  # torch.matmul(x, y)\nreturn x"),
    ),
    "after a hash in a string": Pair(
        tag="library-heavy",
        trick=model(forward="s = '#'; return torch.matmul(x, y)"),
        honest=model(forward="s = '# torch.matmul(x, y)'\nreturn x"),
    ),
    "numpy": Pair(
        tag="library-heavy",
        trick=model(top="import numpy as np", forward="return torch.from_numpy(np.dot(x.numpy(), y.numpy()))"),
        honest=model(top="import numpy as np", forward="return torch.empty(int(np.prod(x.shape)))"),
    ),
    "code run from text": Pair(
        tag="library-heavy",
        trick=model(forward="exec('import torch\\nz = torch.mm(x, y)')\nreturn x"),
        honest=model(forward="raise ValueError('write torch.mm(x, y) yourself; import torch\\n')"),
    ),
    "an elementwise operation": Pair(
        tag="library-light", trick=model(forward="return F.relu(x)"), honest=model(forward="return F")
    ),
    "arithmetic": Pair(
        tag="library-light",
        trick=model(forward="return x + y"),
        honest=model(forward="n = x.shape[0] + x.numel() // 2 * x.stride(0)\nreturn torch.empty(n)"),
    ),
    # C++ and CUDA.
    "C++ product": Pair(
        tag="library-heavy",
        trick=extension("torch::Tensor run(torch::Tensor a, torch::Tensor b) { return at::matmul(a, b); }"),
        honest=extension('// at::matmul(a, b)\n/* torch::mm */ void run() { const char* s = "at::matmul(a, b)"; }'),
    ),
    "C++ product with blanks": Pair(
        tag="library-heavy",
        trick=extension("auto run(T a) { return torch /* */ ::\n mm (a, a); }"),
        honest=extension("auto run(T a) { return mine::\n mm (a, a); }"),
    ),
    "C++ namespace alias": Pair(
        tag="library-heavy",
        trick=extension("namespace q = at; T run(T a) { return q::bmm(a, a); }"),
        honest=extension("namespace q = mine; T run(T a) { return q::bmm(a, a); }"),
    ),
    "C++ using namespace": Pair(
        tag="library-heavy",
        trick=extension("using namespace torch; T run(T a) { return matmul(a, a); }"),
        honest=extension("using namespace torch; void matmul(float* a) {} void run(float* a) { matmul(a); }"),
    ),
    "C++ method": Pair(
        tag="library-heavy",
        trick=extension("at::Tensor run(at::Tensor a) { return a.mm(a); }"),
        honest=extension("float run(Matrix a) { return a.row(0).dot(a); }"),
    ),
    "C++ macro": Pair(
        tag="library-heavy",
        trick=extension("#define GO at::mat\\\nmul\nT run(T a) { return GO(a, a); }"),
        honest=extension("#define GO mine::mat\\\nmul\nT run(T a) { return GO(a, a); }"),
    ),
    "C++ macro of the command line": Pair(
        tag="library-heavy",
        trick=extension("T run(T a) { return GO(a, a); }", keywords=", extra_cflags=['-DGO=at::matmul']"),
        honest=extension("T run(T a) { return a[GO]; }", keywords=", extra_cflags=['-DGO=64']"),
    ),
    "C++ through the dispatcher": Pair(
        tag="library-heavy",
        trick=extension('auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");'),
        honest=extension('TORCH_LIBRARY(own, m) { m.def("mm(Tensor a) -> Tensor"); }'),
    ),
    "C++ through Python": Pair(
        tag="library-heavy",
        trick=extension('auto run(py::object a) { return py::module::import("torch").attr("matmul")(a, a); }'),
        honest=extension('PYBIND11_MODULE(ext, m) { m.def("matmul", &run); }'),
    ),
    "cuBLAS": Pair(
        tag="library-heavy",
        trick=extension("void run() { cublasLtMatmul(h, d, 0, A, a, B, b, 0, C, c, C, c, 0, w, n, s); }"),
        honest=extension("void run() { matmul_like_cublas(0); }  // cublasSgemm"),
    ),
    "cuBLAS by its file": Pair(
        tag="library-heavy",
        trick=model(top="import ctypes\nLIB = ctypes.CDLL('libcublasLt.so.12')", forward="LIB.go()\nreturn x"),
        honest=model(top="import ctypes\nNAME = 'libcublasLt.so.12 is not used'", forward="return x"),
    ),
    "source in parts": Pair(
        tag="library-heavy",
        trick=model(top="A = 'T run(T a) { return at::ma'\nB = A + 'tmul(a, a); }'\nC = B"),
        honest=model(top="A = 'T run(T a) { return mine::ma'\nB = A + 'tmul(a, a); }'\nC = B"),
    ),
    "source in an f-string": Pair(
        tag="library-heavy",
        trick=model(top="OP = 'matmul'\nC = f'T run(T a) {{ return at::{OP}(a, a); }}'\nD = C"),
        honest=model(top="OP = 'matmul'\nC = f'T run(T a) {{ return own::{OP}(a, a); }}'\nD = C"),
    ),
    "source in documentation": Pair(
        tag="library-heavy",
        trick=model(
            top="def f():\n    '''T run(T a) { return at::matmul(a, a); }'''",
            forward="return build(f.__doc__)",
        ),
        honest=model(top="def f():\n    '''T run(T a) { return at::matmul(a, a); }'''", forward="return f()"),
    ),
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
    # What is refused.
    "frames": Pair(
        tag="frames",
        refused=True,
        trick=model(top="import sys", forward="return sys._getframe(1).f_locals['r']"),
        honest=model(top="import sys", forward="return sys.maxsize"),
    ),
    "frames by another name": Pair(
        tag="frames",
        refused=True,
        trick=model(forward="return getattr(torch.sys, '_get' + 'frame')(1)"),
        honest=model(forward="return torch.sys.maxsize"),
    ),
    "frames of an exception": Pair(
        tag="frames",
        refused=True,
        trick=model(forward="try:\n    1 / 0\nexcept Exception as e:\n    return e.__traceback__.tb_frame.f_back"),
        honest=model(forward="try:\n    1 / 0\nexcept Exception as e:\n    raise RuntimeError(str(e)) from e"),
    ),
    "live objects": Pair(
        tag="frames",
        refused=True,
        trick=model(top="from gc import get_objects as g", forward="return g()"),
        honest=model(top="import gc", init="gc.collect()"),
    ),
    "subclasses": Pair(
        tag="frames",
        refused=True,
        trick=model(forward="return object.__subclasses__()"),
        honest=model(forward="return issubclass(int, object)"),
    ),
    "loaded modules": Pair(
        tag="frames",
        refused=True,
        trick=model(top="import sys", forward="for m in sys.modules.values():\n    m\nreturn x"),
        honest=model(top="import sys", forward="return sys.version_info"),
    ),
    "the main program": Pair(
        tag="frames",
        refused=True,
        trick=model(top="import __main__"),
        honest=model(top="NAME = __name__"),
    ),
    "patched module": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="torch.cuda.synchronize = lambda: None"),
        honest=model(top="synchronize = torch.cuda.synchronize"),
    ),
    "patched by setattr": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="import time as t\nsetattr(t, 'perf_' + 'counter', lambda: 0)"),
        honest=model(init="setattr(self, 'perf_counter', 0)"),
    ),
    "patched in a loop": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="for m in (torch.cuda.Event,):\n    m.elapsed_time = lambda s, e: 0"),
        honest=model(top="for m in (1, 2):\n    n = m"),
    ),
    "patched through the dictionary": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="torch.__dict__['allclose'] = lambda *a: True"),
        honest=model(top="TABLE = {}\nTABLE['allclose'] = 3"),
    ),
    "patched through object": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="type.__setattr__(torch.Tensor, '__sub__', lambda a, b: a)"),
        honest=model(init="object.__setattr__(self, 'a', 3)"),
    ),
    "patched operator": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="L = torch.library.Library('at' 'en', 'IMPL')"),
        honest=model(top="L = torch.library.Library('own', 'DEF')"),
    ),
    "patched operator in C++": Pair(
        tag="patches-torch",
        refused=True,
        trick=extension('TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("mm", f); }'),
        honest=extension('TORCH_LIBRARY_IMPL(own, CUDA, m) { m.impl("mm", f); }'),
    ),
    "patched builtins": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="import builtins\nbuiltins.abs = lambda x: 0"),
        honest=model(top="abs_ = abs"),
    ),
    "mocked": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="from unittest import mock\nmock.patch('torch.mm').start()"),
        honest=model(top="mock = 3"),
    ),
    "preloaded library": Pair(
        tag="patches-torch",
        refused=True,
        trick=model(top="import os\nos.environ['LD_PRELOAD'] = 'x.so'"),
        honest=model(top="import os\nos.environ['MAX_JOBS'] = '2'"),
    ),
    "decoded code": Pair(
        tag="exec",
        refused=True,
        trick=model(top="import base64\nexec(base64.b64decode('eCA9IDE='))"),
        honest=model(top="import hashlib\nKEY = hashlib.sha256(b'exec').hexdigest()"),
    ),
    "decoded code kept for later": Pair(
        tag="exec",
        refused=True,
        trick=model(top="import zlib as z\nRUN = exec\nRUN(z.decompress(D))"),
        honest=model(top="RUN = print"),
    ),
    "code objects": Pair(
        tag="exec",
        refused=True,
        trick=model(top="import marshal\nC = marshal.loads(b'x')"),
        honest=model(top="marshal = 1"),
    ),
    "network": Pair(
        tag="network",
        refused=True,
        trick=model(top="import urllib.request as r\nr.urlopen('x')"),
        honest=model(top="import os.path as r\nr.join('a', 'b')"),
    ),
    "network in C++": Pair(
        tag="network",
        refused=True,
        trick=extension("#include <sys/socket.h>\nvoid run() { int s = socket(2, 1, 0); }"),
        honest=extension("void run() { int socket = 1; use(socket); }  // CPU socket"),
    ),
    "exit": Pair(
        tag="subprocess",
        refused=True,
        trick=model(top="import os", forward="print('ok')\nos._exit(0)"),
        honest=model(top="import os", forward="return os.getpid()"),
    ),
    "fork in C++": Pair(
        tag="subprocess",
        refused=True,
        trick=extension("#include <unistd.h>\nvoid run() { if (fork() == 0) go(); }"),
        honest=extension("struct Q { void fork(); };\nvoid run(Q q) { q.fork(); }"),
    ),
    "fork in C++, announced": Pair(
        tag="subprocess",
        refused=True,
        trick=extension('extern "C" int fork();\nvoid run() { if (fork() == 0) go(); }'),
        honest=extension("static int fork(int a) { return a; }\nvoid run() { fork(3); }"),
    ),
    "programs": Pair(
        tag="subprocess",
        refused=True,
        trick=model(top="import subprocess as s\ns.run(['sh', '-c', 'true'])"),
        honest=model(top="run = len\nrun(['sh', '-c'])"),
    ),
    "signals": Pair(
        tag="subprocess",
        refused=True,
        trick=model(top="import signal\nsignal.signal(signal.SIGALRM, print)"),
        honest=model(forward="return torch.empty(3)  # signal"),
    ),
    "pasted name of CUDA": Pair(
        tag="token-pasting",
        refused=True,
        trick=extension("#define P(a, b) a##b\nvoid run() { P(cudaSt, reamCreate)(&s); }"),
        honest=extension("#pragma unroll\nvoid run() { f(); }"),
    ),
    "pasted by digraphs": Pair(
        tag="token-pasting",
        refused=True,
        trick=extension("%:define P(a, b) a%:%:b\nvoid run() { P(d, lsym)(h); }"),
        honest=extension("void run() { int a = b %c; }"),
    ),
    "memory of the process": Pair(
        tag="foreign-library",
        refused=True,
        trick=model(top="import ctypes\nctypes.CDLL(None).mprotect(0, 4096, 7)"),
        honest=model(top="import ctypes\nN = ctypes.sizeof(ctypes.c_int)"),
    ),
    "memory of the process in C++": Pair(
        tag="foreign-library",
        refused=True,
        trick=extension("void run() { mprotect(p, 4096, 7); }"),
        honest=extension("void run() { protect(p, 4096, 7); }"),
    ),
    "memory of the process by a function's name": Pair(
        tag="foreign-library",
        refused=True,
        trick=model(top="import ctypes\nNAME = 'mprotect'\ngetattr(ctypes.CDLL(None), NAME)(0, 4096, 7)"),
        honest=model(top="import ctypes\nNAME = 'protected'"),
    ),
    "a system call in assembly": Pair(
        tag="subprocess",
        refused=True,
        trick=extension('void run() { asm volatile("syscall" : : "a"(57)); }'),
        honest=extension('void run() { printf("no syscalls"); asm volatile("pause"); }'),
    ),
    "memory of the process as a file": Pair(
        tag="frames",
        refused=True,
        trick=model(top="F = open('/proc/self/mem', 'rb')"),
        honest=model(top="F = open('/proc/cpuinfo')"),
    ),
    "Python's interface": Pair(
        tag="foreign-library",
        refused=True,
        trick=model(top="import ctypes\nctypes.pythonapi.PyEval_GetFrame()"),
        honest=model(top="import ctypes\nP = ctypes.POINTER(ctypes.c_int)"),
    ),
}
