"""Names of modules and functions that matter to how a kernel file is read, and their detours undone."""

import builtins
import sys

from kbevolve.evaluators.lint.words import words

#: Modules that are the same wherever they are reached from: ``torch.os.system`` is ``os.system``.
_REACHED = words(
    """
    os sys ctypes builtins inspect gc subprocess threading signal socket importlib multiprocessing shutil
"""
)
#: What makes a library or a function out of the candidate's own code.
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
LIBRARY_LOADERS = frozenset(
    f"ctypes.{name}"
    for name in words("""
    CDLL PyDLL WinDLL OleDLL cdll.LoadLibrary pydll.LoadLibrary LibraryLoader
""")
)
#: Functions that give back what they take, as far as the lint is concerned.
TRANSPARENT = words(
    """
    functools.partial functools.wraps functools.cache functools.lru_cache torch.compile torch.jit.script
    torch.jit.trace torch.no_grad torch.inference_mode torch.vmap torch.func.vmap torch.func.functional_call
    torch.jit.ignore torch._dynamo.disable torch.compiler.disable torch.cuda.make_graphed_callables copy.copy
    copy.deepcopy builtins.staticmethod builtins.classmethod builtins.property torch._dynamo.optimize
    functools.reduce
"""
)
COLLECTIONS = frozenset(
    f"builtins.{name}" for name in words("list tuple set iter reversed sorted enumerate zip dict map filter")
)
NN_CONTAINERS = frozenset(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict", "ParameterList"))
CHILDREN = words("""
    children modules named_children named_modules _modules get_submodule
""")
#: Methods of containers that give their members.
GROUP_METHODS = words("values items get pop copy")
BUILTINS = frozenset(dir(builtins)) | {"__builtins__"}

#: Where a module's own imports can be reached as its attributes; a third party's may be its own parts.
_WITH_DETOURS = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "triton"}
_TORCHS_OWN = words(
    """
    aten prims mkldnn mkldnn_prepacked mkl onednn quantized inductor _quantized sparse torchvision xformers
"""
)


def is_own_operator(name: str) -> bool:
    """Whether ``torch.ops.NAMESPACE.…`` names an operator of the kernel's own library, not one of torch's."""
    parts = name.split(".")
    return name.startswith("torch.ops.") and len(parts) > 3 and parts[2] not in _TORCHS_OWN


def canonical(name: str) -> str:
    """The name with detours undone: ``torch.os.system`` is ``os.system``."""
    parts = name.split(".")
    if parts[0] in _WITH_DETOURS and not name.startswith("torch.signal."):
        for index in range(len(parts) - 1, 0, -1):
            part = parts[index].removeprefix("_") if parts[index] in {"_os", "_sys", "_ctypes"} else parts[index]
            if part in _REACHED and part != parts[index - 1]:
                return ".".join([part, *parts[index + 1 :]])
    return name
