"""Prepares the process that a candidate will live in: environment, directories, limits, and how it is started.

The process's own share (dying with the judge, resource limits) is in `worker/confinement.py`, because it has to
happen inside the process.
"""

import contextlib
import json
import os
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.devices import Device

#: The worker program.
PROGRAM = Path(__file__).parent / "worker" / "__main__.py"

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

#: Largest file a worker may write. Compiled extensions and Triton's caches are a few megabytes.
_FILE_BYTES = 2 << 30
#: Share of the machine's memory that a worker on the CPU may address, and what is granted at least: torch alone
#: maps about 4 GB of addresses.
_ADDRESS_SHARE = 0.75
_LEAST_ADDRESS_BYTES = 16 << 30

#: glibc gives every large block back to the kernel when it is freed, or does not, as the process's early history went.
#: So one process pays page faults for each output and the next does not: eager GELU of 16 MB took 0.95 ms in some
#: processes and 3.4 ms in others, and 0.68-0.76 ms in all with these (2 cores of an AMD EPYC, 2026-11-21). Freed blocks
#: are kept in the process, on both sides of every comparison.
_WARM_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

_DIRECTORY_PREFIX = "kbevolve-worker-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A worker process and the judge's ends of what connects to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    #: Read end of its standard output and error.
    output: int
    #: Its home, cache, temporary and working directory; to be removed when it is dead.
    directory: Path


def start(device: Device) -> Started:
    """Start a worker in a session of its own."""
    directory = Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-"))
    for name in ("home", "tmp", "work"):
        (directory / name).mkdir()
    ours, theirs = socket.socketpair()
    output, output_write = os.pipe()
    orders = {
        "socket": theirs.fileno(),
        "device": "cpu" if device.type == "cpu" else "cuda:0",  # the only one it sees
        "threads": device.threads,
        "parent": os.getpid(),
        "file_bytes": _FILE_BYTES,
        "address_bytes": _address_bytes() if device.type == "cpu" else None,
    }
    try:
        process = subprocess.Popen(
            # -P: this program's folder must not come first in the candidate's module search.
            [sys.executable, "-P", "-u", str(PROGRAM), json.dumps(orders)],
            cwd=directory / "work",
            env=environment(device, directory, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(output_write)
    return Started(process=process, connection=ours, output=output, directory=directory)


def environment(device: Device, directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What the worker's environment holds: an allow-list, its own directories, and one rule for threads."""
    kept = {name: value for name, value in inherited.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    # ninja and other tools that came with this Python are beside it.
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    search = [str(Path(entry).resolve()) for entry in inherited.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if search:
        kept["PYTHONPATH"] = os.pathsep.join(search)
    home, scratch = str(directory / "home"), str(directory / "tmp")
    kept |= {
        "HOME": home,
        "TMPDIR": scratch,
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_EXTENSIONS_DIR": f"{scratch}/extensions",
        "TRITON_CACHE_DIR": f"{scratch}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        "CUDA_CACHE_PATH": f"{scratch}/cuda",
        "MAX_JOBS": str(len(os.sched_getaffinity(0))),
        "OMP_NUM_THREADS": str(device.threads),
        # Idle OpenMP threads spin for 10 ms by default (measured), into the block of the process that is timed next.
        # 10000 turns are 0.5 ms: enough between the parallel regions of one call, over before the other side starts.
        "GOMP_SPINCOUNT": "10000",
        "KMP_BLOCKTIME": "1",
    }
    if device.type == "cuda":
        kept |= _cuda_environment(device, inherited)
    else:
        kept |= {"CUDA_VISIBLE_DEVICES": "", **_WARM_ALLOCATOR}
    return kept


def sweep_directories() -> None:
    """Remove what judges that were killed left behind in the temporary directory."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        owner = directory.name.removeprefix(_DIRECTORY_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(directory)


def _cuda_environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """This GPU alone is visible, and extensions are built for it alone."""
    import torch

    visible = [name for name in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    major, minor = torch.cuda.get_device_capability(device.index)
    # The "a" target holds Hopper's and Blackwell's own instructions (wgmma, bulk copies), and runs on this chip only.
    suffix = "a" if major >= 9 and minor == 0 else ""
    return {
        "CUDA_VISIBLE_DEVICES": visible[device.index] if device.index < len(visible) else str(device.index),
        "TORCH_CUDA_ARCH_LIST": f"{major}.{minor}{suffix}",
    }


def _address_bytes() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_ADDRESS_BYTES, int(memory * _ADDRESS_SHARE))
