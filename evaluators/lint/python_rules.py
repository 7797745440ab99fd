"""Tables about the dotted names of a kernel's Python: which tag a name gives, and which names are refused."""

import re
import sys
from functools import lru_cache

from kbevolve.evaluators.lint.operations import KERNEL_LIBRARIES
from kbevolve.evaluators.lint.words import words

#: Tag -> patterns of names whose mention alone gives it, with everything below them. A dot is a dot here.
_TAGGED = {
    "cuda-graph": "torch.cuda.(CUDAGraph|graphs?|make_graphed_callables)",
    "data-pointer": "builtins.id torch.Tensor.data_ptr",
    "exec": r"""
        base64 binascii codecs.decode (zlib|gzip).decompress\w* lzma bz2 pickle.loads builtins.(bytes|bytearray).fromhex
        importlib.util.spec_from_file_location importlib.machinery.SourceFileLoader runpy
    """,
    "file-write": r"""
        os.(replace|rename|remove|unlink|rmdir|open|write|link|symlink|truncate|mkfifo) shutil.(copy\w*|move|rmtree)
        tempfile mmap torch.save numpy.(savez?|memmap) shelve dbm sqlite3 torch.(UntypedStorage.)?from_file
    """,
    "flags": r"""
        torch.set_(num_threads|num_interop_threads|float32_matmul_precision|default_\w+|flush_denormal|deterministic_\w+)
        torch.use_deterministic_algorithms torch.cuda.(memory.)?set_per_process_memory_fraction
        torch.cuda.memory.(change_current_allocator|CUDAPluggableAllocator) torch.cuda.set_sync_debug_mode
        torch._C._set_(cublas|cudnn)_allow_tf32 torch.backends.cudnn.flags os.(putenv|unsetenv)
        os.environ.(update|setdefault|pop|popitem|clear|__setitem__|__delitem__)
    """,
    "foreign-library": "ctypes.util.find_library",
    "frames": "sys.modules traceback.(extract|walk|format)_stack tracemalloc",
    "half-types": r"""
        (torch|triton.language).(float8|float4|bfloat16|float16|fp8)\w* torch.half torch.(cuda.)?(Half|BFloat16)Tensor
        torch.Tensor.(half|bfloat16) torch.autocast torch.(cuda.)?amp numpy.float16 ml_dtypes torch.(ao|quantization)
    """,
    "module-cache": "functools.(lru_)?cache",
    "streams": """
        torch.(cuda.(Stream|stream|ExternalStream|streams|set_stream|StreamContext|default_stream)|Stream)
        torch._C._cuda_setStream torch.accelerator.set_stream
    """,
    "subprocess": "os.getppid",
    "tensor-subclass": """
        torch.Tensor.(_make_subclass|_make_wrapper_subclass|as_subclass) torch.overrides.TorchFunctionMode
        torch.utils._python_dispatch torch._subclasses torch._lazy
    """,
    "threads": """
        threading.(Thread|Timer) _thread concurrent.futures multiprocessing.pool.ThreadPool asyncio.to_thread
        torch.jit.fork torch.futures
    """,
    "torch-compile": """
        torch.compile torch.jit.(script|trace|freeze|optimize_for_inference) torch._dynamo.optimize torch.export
        torch._inductor.aot_compile torch.compiler torch.fx.symbolic_trace
    """,
    "try-except-fallback": "contextlib.suppress",
}
#: Rule -> the same for names without an honest use in a kernel.
_REFUSED = {
    "exec": "marshal types.(CodeType|FunctionType)",
    "foreign-library": "ctypes.pythonapi",
    "frames": r"""
        sys.(_getframe\w*|_current_\w+|settrace|setprofile|monitoring|addaudithook) sys.modules.(values|items|keys|copy)
        inspect.(stack|currentframe|trace|get(outer|inner)frames) gc.(get_(objects|referrers|referents)|callbacks)
        threading.(settrace|setprofile|_current_frames) __main__ kbevolve bdb pdb
    """,
    "network": """
        socket(server)? ssl urllib3? http ftplib smtplib poplib imaplib xmlrpc telnetlib requests httpx aiohttp
        websockets paramiko boto3 huggingface_hub wget pycurl torch.hub torch.utils.model_zoo pip
        asyncio.(open_connection|start_server)
    """,
    "patches-torch": """
        unittest.mock mock sys.(meta_path|path_hooks|path_importer_cache) importlib.reload forbiddenfruit gorilla wrapt
        torch.utils.rename_privateuse1_backend
    """,
    "subprocess": r"""
        os.(kill|killpg|_exit|abort|fork\w*|system|popen|exec[lv]\w*|spawn[lv]\w*|posix_spawnp?|setsid|nice|setpriority)
        os.(sched_set\w+|ptrace) signal.(signal|alarm|setitimer|raise_signal|pthread_\w+|set_wakeup_fd) pty prctl psutil
        multiprocessing.(Process|Pool|get_context|shared_memory|managers|Manager|spawn) resource.setrlimit
        concurrent.futures.(ProcessPoolExecutor|process) asyncio.create_subprocess_(exec|shell) _posixsubprocess
    """,
}


def _compiled(table: dict[str, str]) -> list[tuple[str, re.Pattern[str]]]:
    return [
        (tag, re.compile("(" + "|".join(names.split()).replace(".", r"\.") + r")(\.|$)"))
        for tag, names in table.items()
    ]


_PATTERNS = [(tag, pattern, False) for tag, pattern in _compiled(_TAGGED)]
_PATTERNS += [(tag, pattern, True) for tag, pattern in _compiled(_REFUSED)]


@lru_cache(maxsize=4096)
def rules_of(name: str) -> tuple[tuple[str, bool], ...]:
    """The tags of a dotted name, each with whether it is a refusal."""
    return tuple((tag, refused) for tag, pattern, refused in _PATTERNS if pattern.match(name))


#: What makes a library or a function out of the kernel's own code.
BUILDERS = words(
    """
    torch.utils.cpp_extension.load torch.utils.cpp_extension.load_inline
    torch.utils.cpp_extension._import_module_from_library torch.cuda._compile_kernel
    torch.cuda._utils._cuda_load_module torch.library.custom_op torch.library.triton_op
    torch._inductor.async_compile.AsyncCompile cupy.RawKernel cupy.RawModule cupy.ElementwiseKernel numba.njit
    numba.jit numba.cuda.jit triton.jit triton.runtime.jit cppyy.cppdef cffi.FFI importlib.util.module_from_spec
    importlib.machinery.ExtensionFileLoader tilelang.compile tilelang.jit warp.kernel
"""
)
#: Functions that load a shared library; `ctypes.cdll.NAME` does as well.
LIBRARY_LOADER = re.compile(r"ctypes\.(CDLL|PyDLL|WinDLL|OleDLL|LibraryLoader|(cdll|pydll)\.\w+)")
#: Functions that start a program.
STARTS_PROGRAM = re.compile(r"subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)")
#: Programs that a kernel may start: torch.utils.cpp_extension starts them as well.
COMPILERS = re.compile(
    r"(?:\S*/)?\s*(nvcc|gcc|g\+\+|cc|c\+\+|clang|clang\+\+|hipcc|ptxas|ninja|cuobjdump|nvdisasm)(-\d+)?(\s|$)"
)
#: Libraries of products and transforms, as their files are called.
COMPUTE_LIBRARIES = re.compile(
    r"(lib)?(cublas|cublasLt|cudnn|cusparse|cusolver|cufft|mkl|openblas|cblas|blas|blis|lapack|dnnl|torch)"
)
#: Files through which a process's memory or surroundings are reached.
PROCESS_FILES = re.compile(
    r"/proc/[^/]*/?(self|thread-self|\d+|%d|%s| |\{)?[^/]*/(task/[^/]+/)?(mem|maps|environ|fd|syscall|stack|cmdline)\b"
)

#: Modules whose names a kernel may not change.
PROTECTED = frozenset(sys.stdlib_module_names) | {"torch", "triton", "numpy", "kbevolve", "__main__"}
#: Settings that torch, Triton and Python offer as attributes: an assignment is no patch.
SETTINGS = re.compile(
    r"torch\.(backends|_inductor\.config|_dynamo\.config|_functorch\.config|fx\.config|_logging|_C\.config)(\.|$)"
    r"|triton\.(knobs|runtime\.driver)(\.|$)|os\.environ(\.|$)|sys\.(stdout|stderr|stdin|argv|path|dont_write_bytecode|ps1)$"
    r"|numpy\.random"
)
#: Environment variables that change which code processes load.
LOADER_VARIABLES = words("LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONSTARTUP CUDA_INJECTION64_PATH")
#: Attributes that lead out of the kernel's own code, on any object.
ESCAPES = words(
    """
    f_back f_globals f_locals f_builtins f_code tb_frame tb_next gi_frame cr_frame ag_frame __subclasses__
    __globals__ __builtins__ __closure__ __func_globals__ cell_contents
"""
)
#: Functions of the C library that change a process or read its memory, when a loaded library is asked for them.
NATIVE_MEMORY = words(
    """
    mprotect ptrace process_vm_readv process_vm_writev pkey_mprotect prctl syscall memfd_create userfaultfd
    dl_iterate_phdr _dl_open __libc_dlopen_mode kill fork _exit execve raise sigaction
"""
)
#: Modules that a kernel is expected to import.
_EXPECTED = frozenset(sys.stdlib_module_names) | words(
    """
    torch triton numpy cuda ninja setuptools packaging pybind11 typing_extensions sympy cffi einops numba
    tilelang warp cutlass pynvml
"""
)


def is_third_party(module: str) -> bool:
    """Whether an imported module is a library of kernels, or none that a kernel is expected to need."""
    root = module.partition(".")[0]
    return root in KERNEL_LIBRARIES or bool(root and root not in _EXPECTED and not rules_of(root))
