"""What a dotted name of Python says about the kernel that mentions it."""

import re
import sys
from functools import lru_cache

from kbevolve.evaluators.lint.operations import KERNEL_LIBRARIES
from kbevolve.evaluators.lint.words import words

#: Tag -> names, or beginnings of names, whose mention alone gives it.
_TAGGED = {
    "cuda-graph": """
        torch.cuda.CUDAGraph torch.cuda.graph torch.cuda.graphs torch.cuda.make_graphed_callables
    """,
    "exec": """
        base64 binascii codecs.decode zlib.decompress zlib.decompressobj lzma bz2 gzip.decompress
        pickle.loads builtins.bytes.fromhex builtins.bytearray.fromhex
        importlib.util.spec_from_file_location importlib.machinery.SourceFileLoader runpy
    """,
    "file-write": """
        os.replace os.rename os.remove os.unlink os.rmdir os.open os.write os.link os.symlink os.truncate
        os.mkfifo shutil.copy shutil.copyfile shutil.copy2 shutil.copytree shutil.move shutil.rmtree
        tempfile mmap torch.save numpy.save numpy.savez numpy.memmap shelve dbm sqlite3 torch.from_file
        torch.UntypedStorage.from_file
    """,
    "flags": """
        torch.set_num_threads torch.set_num_interop_threads torch.set_float32_matmul_precision
        torch.set_default_dtype torch.set_default_device torch.set_default_tensor_type
        torch.set_flush_denormal torch.use_deterministic_algorithms torch.set_deterministic_debug_mode
        torch.cuda.set_per_process_memory_fraction torch.cuda.memory.set_per_process_memory_fraction
        torch.cuda.memory.change_current_allocator torch.cuda.memory.CUDAPluggableAllocator
        torch.cuda.set_sync_debug_mode torch._C._set_cublas_allow_tf32 torch._C._set_cudnn_allow_tf32
        torch.backends.cudnn.flags os.putenv os.unsetenv
    """,
    "foreign-library": "ctypes.util.find_library",
    "frames": """
        sys.modules traceback.extract_stack traceback.walk_stack traceback.format_stack tracemalloc
    """,
    "half-types": """
        torch.float16 torch.half torch.bfloat16 torch.HalfTensor torch.BFloat16Tensor torch.cuda.HalfTensor
        torch.Tensor.half torch.Tensor.bfloat16 torch.autocast torch.amp torch.cuda.amp
        triton.language.float16 triton.language.bfloat16 numpy.float16 ml_dtypes torch.ao torch.quantization
    """,
    "streams": """
        torch.cuda.Stream torch.cuda.stream torch.cuda.ExternalStream torch.cuda.streams torch.Stream
        torch.cuda.set_stream torch._C._cuda_setStream torch.cuda.StreamContext torch.cuda.default_stream
        torch.accelerator.set_stream
    """,
    "subprocess": "os.getppid",
    "tensor-subclass": """
        torch.Tensor._make_subclass torch.Tensor._make_wrapper_subclass torch.Tensor.as_subclass
        torch.overrides.TorchFunctionMode torch.utils._python_dispatch.TorchDispatchMode torch._subclasses
        torch.utils._python_dispatch torch._lazy
    """,
    "threads": """
        threading.Thread threading.Timer _thread concurrent.futures multiprocessing.pool.ThreadPool
        asyncio.to_thread torch.jit.fork torch.futures
    """,
    "torch-compile": """
        torch.compile torch.jit.script torch.jit.trace torch.jit.freeze torch.jit.optimize_for_inference
        torch._dynamo.optimize torch.export torch._inductor.aot_compile torch.compiler
        torch.fx.symbolic_trace
    """,
}
#: Rule class -> names, or beginnings of names, without an honest use in a kernel.
_REFUSED = {
    "exec": "marshal types.CodeType types.FunctionType",
    "foreign-library": "ctypes.pythonapi",
    "frames": """
        sys._getframe sys._getframemodulename sys._current_frames sys._current_exceptions sys.settrace
        sys.setprofile sys.monitoring sys.addaudithook inspect.stack inspect.currentframe inspect.trace
        inspect.getouterframes inspect.getinnerframes gc.get_objects gc.get_referrers gc.get_referents
        gc.callbacks threading.settrace threading.setprofile threading._current_frames __main__ kbevolve bdb
        pdb
    """,
    "network": """
        socket socketserver ssl urllib http ftplib smtplib poplib imaplib xmlrpc telnetlib requests httpx
        aiohttp urllib3 websockets paramiko boto3 huggingface_hub wget pycurl torch.hub
        asyncio.open_connection asyncio.start_server torch.utils.model_zoo pip
    """,
    "patches-torch": """
        unittest.mock mock sys.meta_path sys.path_hooks sys.path_importer_cache importlib.reload
        forbiddenfruit gorilla wrapt torch.utils.rename_privateuse1_backend
    """,
    "subprocess": """
        os.kill os.killpg os._exit os.abort os.fork os.forkpty os.system os.popen os.execv os.execve
        os.execl os.execle os.execlp os.execvp os.execvpe os.execlpe os.spawnl os.spawnle os.spawnlp
        os.spawnv os.spawnve os.spawnvp os.spawnvpe os.posix_spawn os.posix_spawnp os.setsid os.nice
        os.setpriority os.sched_setaffinity os.sched_setscheduler os.ptrace signal.signal signal.alarm
        signal.setitimer signal.raise_signal signal.pthread_kill signal.pthread_sigmask signal.set_wakeup_fd
        pty multiprocessing.Process multiprocessing.Pool multiprocessing.get_context
        multiprocessing.shared_memory multiprocessing.managers multiprocessing.Manager multiprocessing.spawn
        concurrent.futures.ProcessPoolExecutor concurrent.futures.process asyncio.create_subprocess_exec
        asyncio.create_subprocess_shell prctl psutil resource.setrlimit _posixsubprocess
    """,
}
_RULES = {
    name: (tag, refused)
    for table, refused in ((_TAGGED, False), (_REFUSED, True))
    for tag, names in table.items()
    for name in names.split()
}
#: Functions that start a program given as their first argument; which program decides.
STARTS_PROGRAM = frozenset(
    f"subprocess.{name}" for name in words("run Popen call check_call check_output getoutput getstatusoutput")
)
#: What a kernel may start: it could do so through torch.utils.cpp_extension as well.
COMPILERS = re.compile(
    r"(?:\S*/)?\s*(nvcc|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|hipcc|ptxas|ninja|cuobjdump|nvdisasm)(-\d+)?(\s|$)"
)

#: Settings that torch and Triton offer as attributes; to assign to them is no patch.
SETTINGS = re.compile(
    r"torch\.(backends|_inductor\.config|_dynamo\.config|_functorch\.config|fx\.config|_logging|_C\.config)(\.|$)"
    r"|triton\.(knobs|runtime\.driver)(\.|$)|os\.environ(\.|$)|sys\.(stdout|stderr|stdin|argv|path|dont_write_bytecode|ps1)$"
    r"|numpy\.random"
)
#: Modules whose names a kernel may not change.
PROTECTED = frozenset(sys.stdlib_module_names) | {"torch", "triton", "numpy", "builtins", "kbevolve", "__main__"}

#: Attributes that lead out of one's own code, whatever object they are asked of.
ESCAPES = words(
    """
    f_back f_globals f_locals f_builtins f_code tb_frame tb_next gi_frame cr_frame ag_frame __subclasses__
    __globals__ __builtins__ __closure__ __func_globals__ cell_contents
"""
)
#: Attributes that make a tensor or a library do something else, when they are assigned.
NATIVE_MEMORY = words(
    """
    mprotect ptrace process_vm_readv process_vm_writev pkey_mprotect prctl syscall memfd_create userfaultfd
    dl_iterate_phdr _dl_open __libc_dlopen_mode kill fork _exit execve raise sigaction
"""
)
#: Libraries of products and transforms, as their files are called.
COMPUTE_LIBRARIES = re.compile(
    r"(lib)?(cublas|cublasLt|cudnn|cusparse|cusolver|cufft|mkl|openblas|cblas|blas|blis|lapack|dnnl|torch)"
)
#: Files through which a process's memory or surroundings are reached.
PROCESS_FILES = re.compile(
    r"/proc/[^/]*/?(self|thread-self|\d+|%d|%s| |\{)?[^/]*/(task/[^/]+/)?(mem|maps|environ|fd|syscall|stack|cmdline)\b"
)

_HALF_NAME = re.compile(r"(torch|triton\.language)\.(float8|float4|bfloat16|float16|fp8)\w*")
_ENVIRONMENT = words("""
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONSTARTUP CUDA_INJECTION64_PATH
""")
#: Imports that are no third party's kernels.
_EXPECTED = frozenset(sys.stdlib_module_names) | words(
    """
    torch triton numpy cuda ninja setuptools packaging pybind11 typing_extensions sympy cffi einops numba
    tilelang warp cutlass __future__ pynvml
"""
)


@lru_cache(maxsize=4096)
def rule_of(name: str) -> tuple[str, bool] | None:
    """Tag of a dotted name, and whether it is refused; None when there is nothing to say."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = _RULES.get(".".join(parts[:length]))
        if found is not None:
            return found
    return ("half-types", False) if _HALF_NAME.match(name) else None


def is_third_party(module: str) -> bool:
    """Whether an imported module is a library of kernels, or none that a kernel is expected to need."""
    root = module.partition(".")[0]
    return root in KERNEL_LIBRARIES or (root not in _EXPECTED and not module.startswith(".") and rule_of(root) is None)


def is_loader_variable(name: str) -> bool:
    """Whether an environment variable changes which code processes load."""
    return name in _ENVIRONMENT
