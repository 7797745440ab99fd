"""The languages of kernels: which devices run them, what each needs, and what prompts call them."""

from importlib.util import find_spec
from pathlib import Path

from kbevolve.archive.records import Backend
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.sections import SearchSettings

TITLES = {
    Backend.CPP: "C++",
    Backend.CUDA: "CUDA C++",
    Backend.TRITON: "Triton",
    Backend.TORCH: "torch",
    Backend.TILELANG: "TileLang",
    Backend.CUTE: "the CuTe DSL of CUTLASS",
    Backend.THUNDERKITTENS: "CUDA C++ with ThunderKittens",
    Backend.HIP: "HIP C++",
}
#: The language of the playbook whose ideas a language can carry out, where that is another one.
_KIN = {
    Backend.TILELANG: Backend.TRITON,
    Backend.CUTE: Backend.CUDA,
    Backend.THUNDERKITTENS: Backend.CUDA,
    Backend.HIP: Backend.CUDA,
}
#: The packages of Python that a language needs, and the names they are imported under.
_PACKAGES = {
    Backend.TILELANG: {"tilelang": "tilelang"},
    Backend.CUTE: {"nvidia-cutlass-dsl": "cutlass.cute", "apache-tvm-ffi": "tvm_ffi"},
}
#: Where kernels find ThunderKittens' headers. A kernel may read /opt, but no home directory.
KITTENS = Path("/opt/ThunderKittens/include/kittens.cuh")


def default_backends(device_type: str, device: str) -> tuple[Backend, ...]:
    """Languages of new kernels where none is named, on a ``"cpu"`` or ``"cuda"`` device of this description."""
    if device_type == "cpu":
        return (Backend.CPP,)
    return (Backend.HIP if _is_amd(device) else Backend.CUDA, Backend.TRITON)


def possible_backends(device_type: str, device: str) -> tuple[Backend, ...]:
    """All languages that such a device runs."""
    more: tuple[Backend, ...] = ()
    if device_type == "cuda":
        more = (Backend.TILELANG,) if _is_amd(device) else (Backend.TILELANG, Backend.CUTE, Backend.THUNDERKITTENS)
    return default_backends(device_type, device) + more


def playbook_name(backend: Backend) -> str:
    """The language of the playbook's ideas that a kernel in `backend` can carry out."""
    return _KIN.get(backend, backend).value


def named_backends(search: SearchSettings) -> tuple[Backend, ...]:
    """The languages that the settings name, of the islands in turn; none for the device's own."""
    names = search.island_backends or (() if search.backend == "any" else (search.backend,))
    return tuple(map(Backend, names))


def check_backends(search: SearchSettings, device_type: str, device: str) -> None:
    """SettingsError when the device runs no kernel in a language that the settings name, or a package is missing."""
    setting = "search.island_backends" if search.island_backends else "search.backend"
    for backend in named_backends(search):
        possible = [one.value for one in possible_backends(device_type, device)]
        if backend.value not in possible:
            raise SettingsError(
                f"{setting}={backend}: kernels for this {device_type} device are written in {' or '.join(possible)}; "
                f"name one of these, or leave out {'the setting' if search.island_backends else '--backend'}"
            )
        if lacking := obstacle(backend, device):
            raise SettingsError(f"{setting}={backend}: {lacking}")


def obstacle(backend: Backend, device: str) -> str:
    """What a language lacks on this machine and what to do, as one line; "" for nothing, or what only a build shows."""
    for package, module in _PACKAGES.get(backend, {}).items():
        if not _installed(module):
            return f"the package {package} is not installed; pip install 'kbevolve[{backend}]'"
    if backend is Backend.THUNDERKITTENS:
        if not any(architecture in device for architecture in ("sm_90", "sm_100", "sm_103")):
            return "ThunderKittens is for Hopper and Blackwell; take --backend cuda on this GPU"
        if not KITTENS.exists():
            return (
                f"there is no {KITTENS}; git clone https://github.com/HazyResearch/ThunderKittens "
                f"{KITTENS.parents[1]} (kernels may not read a home directory)"
            )
    return ""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _is_amd(device: str) -> bool:
    return "gfx" in device
