"""Starts the process that a candidate will live in, with its directory, its environment and its limits.

Two guards, each used where the machine has it: bubblewrap around the process (`bubblewrap.py`), and what the process
does to itself before it reads a line of a candidate (`worker/confinement.py`: Landlock, a filter of system calls,
limits).
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox import bubblewrap, directories
from kbevolve.evaluators.sandbox.environment import CONNECTIONS, worker_environment
from kbevolve.evaluators.sandbox.forkserver import ForkedWorker, ForkServer
from kbevolve.evaluators.sandbox.permissions import Permissions, permissions_for
from kbevolve.evaluators.worker import landlock

#: The worker program.
PROGRAM = Path(__file__).resolve().parents[1] / "worker" / "__main__.py"

#: Largest file a worker may write. Compiled extensions and Triton's caches are a few megabytes.
_FILE_BYTES = 2 << 30
#: Share of the machine's memory that a worker may write, and on the CPU address; and what may be addressed at least:
#: torch alone maps about 4 GB of addresses.
_MEMORY_SHARE = 0.75
_LEAST_ADDRESS_BYTES = 16 << 30
#: Where a container says how much memory it has (control groups of version 2 and 1).
_CONTAINER_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

#: Seconds for a Python that imports next to nothing.
_REHEARSAL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedWorker:
    """A worker process and the judge's ends of what connects to it."""

    process: subprocess.Popen[bytes] | ForkedWorker
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
    device: Device, fork_server: ForkServer | None = None, *, built: Path | None = None, connections: int = 0
) -> LaunchedWorker:
    """Start a worker in a session of its own, or have a fork_server bear it.

    Args:
        device: that it works on.
        fork_server: what bears it.
        built: what Triton built for itself in another worker (`triton_cache`), for this one to find.
        connections: of its CUDA context to the device; 0 for the driver's number.

    Raises:
        EvaluatorError: the fork_server has died.
    """
    directory = directories.make(fork_server.folder if fork_server else None)
    if built is not None:
        shutil.copytree(built, directories.triton_cache(directory))
    ours, theirs = socket.socketpair()
    output, output_write = os.pipe()
    wrapped = bubblewrap.obstacle(device.type) is None
    own = worker_environment(device, directory, os.environ)
    if connections:
        own[CONNECTIONS] = str(connections)
    process: subprocess.Popen[bytes] | ForkedWorker
    try:
        if fork_server is not None:
            granted = permissions_for(device, directory, PROGRAM.parent, os.environ)
            orders = _orders(device, granted, socket_fd=theirs.fileno(), wrapped=wrapped)
            process = fork_server.bear(orders, own, directory, ours, theirs, output_write)
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
    return LaunchedWorker(process=process, connection=ours, output=output, directory=directory, bubblewrap=wrapped)


def open_fork_server(device: Device) -> ForkServer | None:
    """A fork_server for workers of this device; None where they need bubblewrap, each its own, for lack of Landlock."""
    wrapped = bubblewrap.obstacle(device.type) is None
    if wrapped and not landlock.usable():
        return None
    folder = directories.make()
    ours, theirs = socket.socketpair()
    try:
        granted = permissions_for(device, folder, PROGRAM.parent, os.environ)
        orders = {
            "fork_server": {
                "socket_fd": theirs.fileno(),
                "device": _seen(device),
                "parent": None if wrapped else os.getpid(),
            }
        }
        return ForkServer(
            _run(orders, granted, device, folder, wrapped=wrapped),
            connection=ours,
            theirs=theirs,
            environment=worker_environment(device, folder, os.environ),
            folder=folder,
        )
    except BaseException:
        ours.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        theirs.close()


def confinement_level(device: Device) -> str:
    """The level of confinement that a worker for this device reaches here, e.g. "landlock 7, seccomp, limits".

    It is reached for this answer, in a process that ends before it imports torch.

    Raises:
        OSError, subprocess.SubprocessError: no process can be started in this way.
    """
    directory = directories.make()
    wrapped = bubblewrap.obstacle(device.type) is None
    try:
        done = subprocess.run(
            _command(device, directory, socket_fd=None, wrapped=wrapped),
            cwd=directory / "work",
            env=worker_environment(device, directory, os.environ),
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


def _command(device: Device, directory: Path, *, socket_fd: int | None, wrapped: bool) -> list[str]:
    granted = permissions_for(device, directory, PROGRAM.parent, os.environ)
    orders = _orders(device, granted, socket_fd=socket_fd, wrapped=wrapped)
    return _run(orders, granted, device, directory, wrapped=wrapped)


def _orders(device: Device, granted: Permissions, *, socket_fd: int | None, wrapped: bool) -> dict[str, object]:
    return {
        "socket": socket_fd,
        "device": _seen(device),
        "threads": device.threads,
        "confinement": _confinement(device, granted, wrapped=wrapped),
    }


def _run(
    orders: Mapping[str, object], granted: Permissions, device: Device, directory: Path, *, wrapped: bool
) -> list[str]:
    """The command that runs the worker program."""
    outside = bubblewrap.command(granted, device.type, directory) if wrapped else []
    # -P: this program's folder must not come first in the candidate's module search.
    return [*outside, sys.executable, "-P", "-u", str(PROGRAM), json.dumps(orders)]


def _seen(device: Device) -> str:
    return "cpu" if device.type == "cpu" else "cuda:0"  # the only one it sees


def _confinement(device: Device, granted: Permissions, *, wrapped: bool) -> dict[str, object]:
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


def memory_bytes() -> int:
    """The share of the machine's or the container's memory that a worker or a compiler gets."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CONTAINER_MEMORY:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            memory = min(memory, int(Path(name).read_text()))
    return int(memory * _MEMORY_SHARE)
