"""The environment of workers and compilers: an allow-list, their own directories, and the number of threads."""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

from kbevolve.evaluators.device.devices import Device, visible_name
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.sandbox.gpu import find_gpu
from kbevolve.evaluators.sandbox.permissions import MODELS, search_path

#: The CUDA driver's variable for the hardware queues of a context.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
#: Variables that a worker may see. No others are passed: they may hold API keys.
_PASSED = {"PATH", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "LD", "NVCC", "TZ"}
#: The same by prefix: toolkits are found through them, and the last three switch NVLink multicast off.
_PASSED_PREFIXES = (
    "LC_",
    "CUDA_",
    "CUDAHOSTCXX",
    "NVIDIA_",
    "NVCC_",
    "TRITON_PTXAS",
    "NCCL_",
    "NVSHMEM_",
    "TORCH_SYMM_",
)

#: Whether glibc returns a large freed block to the kernel depends on the early history of the process. So one process
#: pays page faults for each output and the next does not: eager GELU of 16 MB took 0.95 ms in some processes, 3.4 ms in
#: others, and 0.68-0.76 ms in all with these (2 cores of an AMD EPYC, 2026-11-21). With these a process keeps freed
#: blocks, on both sides of every comparison.
_WARM_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


def worker_environment(device: Device, directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment, from the judge's (`inherited`); `directory` is the worker's own."""
    kept = program_environment(device.type, directory, inherited, threads=device.threads)
    return kept | _cuda_environment(device, inherited) if device.type == "cuda" else kept


def program_environment(
    device_type: str, directory: Path, inherited: Mapping[str, str], *, threads: int
) -> dict[str, str]:
    """The same for a process that forks workers: not yet with one GPU that is visible."""
    kept = allowed(inherited)
    if search := search_path(inherited):
        kept["PYTHONPATH"] = os.pathsep.join(search)
    home, scratch = str(directory / "home"), str(directory / "tmp")
    kept |= {
        "HOME": home,
        "TMPDIR": scratch,
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_EXTENSIONS_DIR": f"{scratch}/extensions",
        "TRITON_CACHE_DIR": str(directories.triton_cache(directory)),
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        "CUDA_CACHE_PATH": f"{scratch}/cuda",
        # torch.compile compiles in the process itself: its pool of compilers needs the machine's shared memory folder,
        # and would look like processes that a candidate leaked.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "MAX_JOBS": str(len(os.sched_getaffinity(0))),
        "OMP_NUM_THREADS": str(threads),
        # Idle OpenMP threads spin for about 10 ms before they sleep. Waking one takes 0.5 ms here, and it is chance
        # whether one sleeps between two calls: where they spun for only 0.5 ms, a call of 0.09 ms took 0.09 or 0.61 ms,
        # block by block. They disturb no other measurement: a process that is not timed is stopped.
        "GOMP_SPINCOUNT": "200000",
        "KMP_BLOCKTIME": "1",
    }
    if inherited.get(MODELS):
        kept |= {MODELS: inherited[MODELS], "HF_HUB_OFFLINE": "1"}
    if device_type == "cpu":
        kept |= {"CUDA_VISIBLE_DEVICES": "", **_WARM_ALLOCATOR}
    return kept


def allowed(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables that confined processes may see, with this Python's own programs on the PATH."""
    kept = {name: value for name, value in inherited.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept


def cuda_architecture(index: int) -> str:
    """The target of extensions on this GPU, as torch spells it, e.g. "9.0a"."""
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    # The "a" target has Hopper's and Blackwell's own instructions (wgmma, bulk copies), and runs on this chip only.
    return f"{major}.{minor}a" if major >= 9 and minor == 0 else f"{major}.{minor}"


def _cuda_environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """Only this GPU is visible, and extensions are built only for it."""
    gpu = find_gpu(device)
    return {
        # By name, since an index counts the GPUs that can be opened, and the other ones cannot.
        "CUDA_VISIBLE_DEVICES": gpu.name if gpu else visible_name(device.index, inherited),
        "TORCH_CUDA_ARCH_LIST": cuda_architecture(device.index),
    }
