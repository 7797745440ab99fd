"""What a qualified name of C++ or CUDA says about the kernel that mentions it."""

import re
from functools import lru_cache

from kbevolve.evaluators.lint.operations import is_heavy, operation_weight, weight_of
from kbevolve.evaluators.lint.words import words

#: Tag -> pattern of a whole qualified name (aliases undone) that gives it.
_TAGGED = {
    "cuda-graph": r"""
        (cuda|cu|hip)(Graph[A-Z]|Stream(Begin|End)Capture)\w* at::cuda::CUDAGraph
    """,
    "fast-math": """
        __(expf|exp10f|logf|log2f|log10f|sinf|cosf|tanf|sincosf|powf|fdividef) __tanhf
    """,
    "file-write": r"""
        (std::)?(fopen|freopen|ofstream|fstream|shm_open|mkstemp|memfd_create|unlink|rename|creat|fwrite|tmpfile)
        (std::)?filesystem::\w+
    """,
    "flags": r"""
        (cuda|cu)(DeviceSetLimit|CtxSetLimit|CtxResetPersistingL2Cache|DeviceSetCacheConfig|SetDeviceFlags)
        cudaAccessPolicyWindow accessPolicyWindow (std::)?(setenv|putenv|unsetenv) omp_set_num_threads
        at::globalContext torch::globalContext at::set_num_threads torch::set_num_threads _MM_SET_\w+
    """,
    "foreign-library": """
        dlopen dlsym dlmopen dlvsym dladdr cuGetProcAddress cudaGetDriverEntryPoint LoadLibraryA?
    """,
    "half-types": r"""
        __half2? __nv_bfloat162? nv_bfloat16 nv_bfloat162 __nv_fp8\w*
        (at|c10|torch)::(Half|BFloat16|Float8\w+|kHalf|kBFloat16|kFloat16) _Float16 __fp16 __bf16
        \w+::precision::tf32 precision::tf32 __float_to_tf32 (cutlass|cute)::(half_t|bfloat16_t|tfloat32_t)
        __float2half\w* __float2bfloat16\w* _cvtss_sh _mm\d*_cvtps_ph _mm\d*_dpbf16_ps
        CUBLAS_COMPUTE_32F_FAST\w+ CUBLAS_TF32\w+
    """,
    "module-cache": "thread_local",
    "streams": r"""
        (cuda|cu|hip)StreamCreate\w* (\w+::)*getStreamFromPool cudaStreamPerThread
        (\w+::)*getStreamFromExternal hipStreamPerThread (\w+::)*setCurrentCUDAStream
    """,
    "third-party": r"""
        (cutlass::gemm::device|ck|thrust|dnnl|tensorflow|arrayfire|Eigen)::\w.* arm_compute::\w.*
    """,
    "threads": r"""
        std::(thread|jthread|async) pthread_create thrd_create (cuda|hip)LaunchHostFunc cuLaunchHostFunc
        (cuda|cu)StreamAddCallback tbb::\w.* clone3? boost::thread
    """,
    "exec": r"""
        PyRun_\w+ Py_CompileString\w* (py|pybind11)::(exec|eval|eval_file) PyMarshal_\w+
    """,
    "data-pointer": "unsafeGetTensorImpl",
}
#: Rule -> the same for names that no honest kernel calls, unless it defines them itself.
_REFUSED = {
    "foreign-library": r"""
        mprotect pkey_mprotect ptrace process_vm_(readv|writev) dl_iterate_phdr userfaultfd _dl_\w+
        __libc_dlopen_mode
    """,
    "frames": r"""
        PyEval_Get(Frame|Globals|Locals|Builtins) PyThreadState_\w+ PyFrame_\w+ PyGC_\w+ PyObject_GC_\w+
        _PyFrame\w* PyUnstable_\w+ PyInterpreterState_\w+
    """,
    "network": r"socket connect sendto recvfrom getaddrinfo curl_\w+",
    "patches-torch": r"""
        PyObject_SetAttr(String)? PyObject_GenericSetAttr PyDict_SetItemString
        PyImport_(AddModule\w*|GetModuleDict) PyType_Modified
    """,
    "subprocess": """
        fork vfork execl[pe]* execv[pe]* posix_spawnp? (std::)?system popen kill raise _exit _Exit
        (std::)?quick_exit syscall (std::)?signal sigaction sigprocmask setitimer alarm setpriority
        sched_setscheduler prctl
    """,
}
_LIBRARY = re.compile(
    r"(cublas(Lt|Xt)?|cudnn|cusparse|cusolver\w*|cufft|hipblas|rocblas|miopen|cutensor)[A-Z]\w*|(mkl|cblas|LAPACKE)_\w+|dnnl_\w+"
    r"|[sdch]gemm_|cublas_?[a-z]+gemm\w*|(at|c10)::cuda::blas::\w+|at::native::cpublas::\w+|c10d::\w+"
)
_TORCH = re.compile(
    r"(?:at|torch)(?:::(?:native|_ops|cpu|cuda|compositeimplicitautograd|compositeexplicitautograd|meta))*::([a-z_]\w*)(?:::\w+)*"
)
_TORCH_PARTS = re.compile(r"(?:at|torch)::(nn::functional|linalg|fft|special|sparse|nn)::(\w+)")
#: Parts of ATen that are registers, threads and pointers, not operations.
_PLAIN = re.compile(
    r"(at|torch|c10)::(vec|cpu|parallel|detail|indexing|jit|autograd|cuda|impl|internal|symint|headeronly|stable)::"
)
#: Names under at:: and torch:: that describe, convert or organise.
_TYPES = words(
    """
    empty_cuda empty_cpu dtype device layout options requires_grad memory_format nullopt parallel_for
    parallel_reduce in_parallel_region opmath_type acc_type vec native cuda cpu nn linalg fft special sparse
    indexing jit autograd detail _ops internal data manual_seed toString elementSize promote_types
    isFloatingType typeMetaToScalarType optional string executor checkpoint intrusive_ptr init serialize
    tensor_options getCPUScalarType divup maybe_wrap_dim headeronly stable impl schema init_num_threads
    get_default_dtype_as_scalartype have_same_shape elementsize maximum_indentation current_device device_of
"""
)
#: Methods of a C++ tensor that neither compute nor have a name of Python's.
CPP_DESCRIBES = words(
    """
    scalar_type sizes strides options defined use_count accessor packed_accessor packed_accessor32
    packed_accessor64 expect_contiguous toType toBackend sym_sizes sym_size sym_numel tensor_data
    unsafeGetTensorImpl getIntrusivePtr key_set suggest_memory_format variable_data reset is_same
"""
)
#: Names that a macro of the kernel may not put together.
_SENSITIVE = re.compile(
    r"(cuda|cu|hip)[A-Z]\w*|(cublas|cudnn|cusparse|cusolver|cufft)\w+|pthread_\w+|thread|jthread|async|dlopen|dlsym|mprotect|ptrace"
    r"|fork|system|popen|syscall|getStreamFromPool|Py[A-Z]\w*|torch|TORCH_\w+|fopen|socket"
)


_TAG_PATTERNS = {tag: re.compile("|".join(names.split())) for tag, names in _TAGGED.items()}
_REFUSAL_PATTERNS = {rule: re.compile("|".join(names.split())) for rule, names in _REFUSED.items()}


@lru_cache(maxsize=8192)
def tag_of(name: str) -> str:
    """The tag of a name, "" for none."""
    return next((tag for tag, pattern in _TAG_PATTERNS.items() if pattern.fullmatch(name)), "")


@lru_cache(maxsize=8192)
def refusal_of(name: str) -> str:
    """The rule that forbids a call of this name, "" for none."""
    return next((rule for rule, pattern in _REFUSAL_PATTERNS.items() if pattern.fullmatch(name)), "")


@lru_cache(maxsize=8192)
def weight_in_cpp(name: str) -> str:
    """How much a name of a library computes when it is called: "heavy", "light", or "" for nothing."""
    if _LIBRARY.fullmatch(name):
        return "heavy"
    if part := _TORCH_PARTS.match(name):
        return weight_of(f"torch.{part[1].replace('::', '.')}.{part[2]}")
    found = _TORCH.match(name)
    if found is None or found[1] in _TYPES or re.match(r"k[A-Z]", found[1]):
        return ""
    if _PLAIN.match(name):
        return "heavy" if is_heavy(found[1]) else ""
    return operation_weight(found[1])


def is_sensitive(name: str) -> bool:
    """Whether a macro of the kernel may not put this name together."""
    return _SENSITIVE.fullmatch(name) is not None
