"""Prepares the process that a candidate will live in: environment, directories, limits, and how it is started.

Two guards, each used where the machine has it: bubblewrap around the process (`bubblewrap.py`), and what the process
does to itself before it reads a line of a candidate (`worker/confinement.py`: Landlock, a filter of system calls,
limits).
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

from kbevolve.evaluators.devices import Device, visible_name
from kbevolve.evaluators.isolation import bubblewrap, processes
from kbevolve.evaluators.isolation.gpu import find_gpu
from kbevolve.evaluators.isolation.grants import Grants, grants, search_path
from kbevolve.evaluators.isolation.nursery import Nursery, Son
from kbevolve.evaluators.worker import landlock

#: The worker program.
PROGRAM = Path(__file__).resolve().parents[1] / "worker" / "__main__.py"

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
#: Share of the machine's memory that a worker may write, and on the CPU address; and what may be addressed at least:
#: torch alone maps about 4 GB of addresses.
_MEMORY_SHARE = 0.75
_LEAST_ADDRESS_BYTES = 16 << 30
#: Where a container says how much memory it has (control groups of version 2 and 1).
_CONTAINER_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

#: glibc gives every large block back to the kernel when it is freed, or does not, as the process's early history went.
#: So one process pays page faults for each output and the next does not: eager GELU of 16 MB took 0.95 ms in some
#: processes and 3.4 ms in others, and 0.68-0.76 ms in all with these (2 cores of an AMD EPYC, 2026-11-21). Freed blocks
#: are kept in the process, on both sides of every comparison.
_WARM_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}

#: Seconds for a Python that imports next to nothing.
_REHEARSAL_SECONDS = 30.0

#: The CUDA driver's variable for the connections of a context to its device.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
#: Then follows the process id of the judge.
DIRECTORY_PREFIX = "kbevolve-worker-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A worker process and the judge's ends of what connects to it."""

    process: subprocess.Popen[bytes] | Son
    connection: socket.socket
    #: Read end of its standard output and error.
    output: int
    #: Its home, cache, temporary and working directory; to be removed when it is dead.
    directory: Path
    #: Whether it runs inside bubblewrap.
    bubblewrap: bool

    @property
    def led_by_bubblewrap(self) -> bool:
        """Whether `process` is bubblewrap, with the worker beneath it."""
        return self.bubblewrap and isinstance(self.process, subprocess.Popen)


def start(
    device: Device, nursery: Nursery | None = None, *, built: Path | None = None, connections: int = 0
) -> Started:
    """Start a worker in a session of its own, or have a nursery bear it.

    Args:
        device: that it works on.
        nursery: what bears it.
        built: what Triton built for itself in another worker (`triton_cache`), for this one to find.
        connections: of its CUDA context to the device; 0 for the driver's number.

    Raises:
        EvaluatorError: the nursery has died.
    """
    directory = _make_directory(nursery.folder if nursery else None)
    if built is not None:
        shutil.copytree(built, triton_cache(directory))
    ours, theirs = socket.socketpair()
    output, output_write = os.pipe()
    wrapped = bubblewrap.obstacle(device.type) is None
    own = environment(device, directory, os.environ)
    if connections:
        own[CONNECTIONS] = str(connections)
    process: subprocess.Popen[bytes] | Son
    try:
        if nursery is not None:
            granted = grants(device, directory, PROGRAM.parent, os.environ)
            orders = _orders(device, granted, socket_fd=theirs.fileno(), wrapped=wrapped)
            process = nursery.bear(orders, own, directory, ours, theirs, output_write)
        else:
            process = subprocess.Popen(
                _command(device, directory, socket_fd=theirs.fileno(), wrapped=wrapped),
                cwd=directory / "work",
                env=own,
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
    return Started(process=process, connection=ours, output=output, directory=directory, bubblewrap=wrapped)


def open_nursery(device: Device) -> Nursery | None:
    """A nursery for workers of this device; None where they need bubblewrap, each its own, for lack of Landlock."""
    wrapped = bubblewrap.obstacle(device.type) is None
    if wrapped and not landlock.usable():
        return None
    folder = _make_directory()
    ours, theirs = socket.socketpair()
    try:
        granted = grants(device, folder, PROGRAM.parent, os.environ)
        orders = {
            "nursery": {
                "socket_fd": theirs.fileno(),
                "device": _seen(device),
                "parent": None if wrapped else os.getpid(),
            }
        }
        return Nursery(
            _run(orders, granted, device, folder, wrapped=wrapped),
            connection=ours,
            theirs=theirs,
            environment=environment(device, folder, os.environ),
            folder=folder,
        )
    except BaseException:
        ours.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        theirs.close()


def rehearse(device: Device) -> str:
    """The level of confinement that a worker for this device reaches here, e.g. "landlock 7, seccomp, limits".

    It is reached for this answer, in a process that ends before it imports torch.

    Raises:
        OSError, subprocess.SubprocessError: no process can be started in this way.
    """
    directory = _make_directory()
    wrapped = bubblewrap.obstacle(device.type) is None
    try:
        done = subprocess.run(
            _command(device, directory, socket_fd=None, wrapped=wrapped),
            cwd=directory / "work",
            env=environment(device, directory, os.environ),
            capture_output=True,
            text=True,
            timeout=_REHEARSAL_SECONDS,
            check=True,
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return full_level(done.stdout.strip(), wrapped=wrapped)


def full_level(reached: str, *, wrapped: bool) -> str:
    """The level as it is recorded, from what the worker reached on its own."""
    return f"bubblewrap, {reached}" if wrapped else reached


def triton_cache(directory: Path) -> Path:
    """Where Triton keeps what it builds in the worker with this directory."""
    return directory / "tmp" / "triton"


def _make_directory(parent: Path | None = None) -> Path:
    directory = Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=parent))
    for name in ("home", "tmp", "work"):
        (directory / name).mkdir()
    return directory


def _command(device: Device, directory: Path, *, socket_fd: int | None, wrapped: bool) -> list[str]:
    granted = grants(device, directory, PROGRAM.parent, os.environ)
    orders = _orders(device, granted, socket_fd=socket_fd, wrapped=wrapped)
    return _run(orders, granted, device, directory, wrapped=wrapped)


def _orders(device: Device, granted: Grants, *, socket_fd: int | None, wrapped: bool) -> dict[str, object]:
    return {
        "socket": socket_fd,
        "device": _seen(device),
        "threads": device.threads,
        "confinement": _confinement(device, granted, wrapped=wrapped),
    }


def _run(orders: Mapping[str, object], granted: Grants, device: Device, directory: Path, *, wrapped: bool) -> list[str]:
    """The command that runs the worker program."""
    outside = bubblewrap.command(granted, device.type, directory) if wrapped else []
    # -P: this program's folder must not come first in the candidate's module search.
    return [*outside, sys.executable, "-P", "-u", str(PROGRAM), json.dumps(orders)]


def _seen(device: Device) -> str:
    return "cpu" if device.type == "cpu" else "cuda:0"  # the only one it sees


def _confinement(device: Device, granted: Grants, *, wrapped: bool) -> dict[str, object]:
    """The arguments of `worker.confinement.confine`."""
    memory = memory_bytes()
    on_cpu = device.type == "cpu"
    return {
        "parent": None if wrapped else os.getpid(),
        "file_bytes": _FILE_BYTES,
        "address_bytes": max(_LEAST_ADDRESS_BYTES, memory) if on_cpu else None,
        "data_bytes": memory,
        "files": granted.for_landlock(),
    }


def environment(device: Device, directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What the worker's environment holds: an allow-list, its own directories, and one rule for threads."""
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
        "TRITON_CACHE_DIR": str(triton_cache(directory)),
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


def sweep_directories() -> None:
    """End and remove what judges that were killed left behind."""
    for directory in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"):
        owner = directory.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            processes.kill(processes.strays(directory))
            remove(directory)


def remove(directory: Path) -> None:
    """Remove a worker's directory, whatever a candidate made of it; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):  # a tree deeper than Python goes
        shutil.rmtree(directory, ignore_errors=True)
    # … or with folders that nobody may enter, which only root removes at once.
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if not directory.exists():
            return
        subprocess.run([*command, "--", str(directory)], capture_output=True, check=False)


def _cuda_environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """This GPU alone is visible, and extensions are built for it alone."""
    gpu = find_gpu(device)
    return {
        # Numbers count what can be opened, and its siblings cannot be.
        "CUDA_VISIBLE_DEVICES": gpu.name if gpu else visible_name(device.index, inherited),
        "TORCH_CUDA_ARCH_LIST": cuda_architecture(device.index),
    }


def memory_bytes() -> int:
    """The share of the machine's or the container's memory that a worker or a compiler gets."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CONTAINER_MEMORY:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            memory = min(memory, int(Path(name).read_text()))
    return int(memory * _MEMORY_SHARE)
