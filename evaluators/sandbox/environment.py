"""What a worker finds in its environment: an allow-list, its own directories, and one rule for threads."""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

from kbevolve.evaluators.device.devices import Device, visible_name
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.sandbox.gpu import find_gpu
from kbevolve.evaluators.sandbox.permissions import search_path

#: The CUDA driver's variable for the connections of a context to its device.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
#: Variables that a worker may see. Everything else stays behind, API keys above all.
_PASSED = {"PATH", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "LD", "NVCC", "TZ"}
#: The same by prefix: toolkits are found through these; the last three switch NVLink multicast off where it must be.
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

#: glibc gives every large block back to the kernel when it is freed, or does not, as the process's early history went.
#: So one process pays page faults for each output and the next does not: eager GELU of 16 MB took 0.95 ms in some
#: processes and 3.4 ms in others, and 0.68-0.76 ms in all with these (2 cores of an AMD EPYC, 2026-11-21). Freed blocks
#: are kept in the process, on both sides of every comparison.
_WARM_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


def worker_environment(device: Device, directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment.

    Args:
        device: that it works on.
        directory: its own.
        inherited: the judge's environment.
    """
    kept = allowed(inherited)
    search = search_path(inherited)
    if search:
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
        # Compilers of torch.compile in the process itself: a pool of them needs the machine's shared memory folder,
        # and would look like helpers that a candidate left behind.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "MAX_JOBS": str(len(os.sched_getaffinity(0))),
        "OMP_NUM_THREADS": str(device.threads),
        # Idle OpenMP threads spin for about 10 ms before they sleep. A thread that sleeps is woken in 0.5 ms here, and
        # whether one sleeps between two calls is chance: a call of 0.09 ms took 0.09 or 0.61 ms, block by block, where
        # they spun for 0.5 ms only. They spin into nobody's block: whoever is not timed is stopped.
        "GOMP_SPINCOUNT": "200000",
        "KMP_BLOCKTIME": "1",
    }
    if device.type == "cuda":
        kept |= _cuda_environment(device, inherited)
    else:
        kept |= {"CUDA_VISIBLE_DEVICES": "", **_WARM_ALLOCATOR}
    return kept


def allowed(inherited: Mapping[str, str]) -> dict[str, str]:
    """What of an environment may be seen under guard, with the tools that came with this Python on the PATH."""
    kept = {name: value for name, value in inherited.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept


def cuda_architecture(index: int) -> str:
    """What extensions are built for on this GPU, as torch spells it, e.g. "9.0a"."""
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    # The "a" target holds Hopper's and Blackwell's own instructions (wgmma, bulk copies), and runs on this chip only.
    return f"{major}.{minor}a" if major >= 9 and minor == 0 else f"{major}.{minor}"


def _cuda_environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """This GPU alone is visible, and extensions are built for it alone."""
    gpu = find_gpu(device)
    return {
        # Numbers count what can be opened, and its siblings cannot be.
        "CUDA_VISIBLE_DEVICES": gpu.name if gpu else visible_name(device.index, inherited),
        "TORCH_CUDA_ARCH_LIST": cuda_architecture(device.index),
    }
