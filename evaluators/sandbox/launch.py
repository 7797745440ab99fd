"""Starts the process that will run a candidate, with its directory, its environment and its limits.

Two guards, each used where the machine has it: bubblewrap around the process (`bubblewrap.py`), and what the process
does to itself before it reads a line of a candidate: Landlock, a filter of system calls, limits
(`worker/confinement.py`).
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox import bubblewrap, directories
from kbevolve.evaluators.sandbox.environment import CONNECTIONS, program_environment, worker_environment
from kbevolve.evaluators.sandbox.forkserver import ForkServer, WorkerProcess, did_not_start, introduced
from kbevolve.evaluators.sandbox.permissions import DEVICES, Permissions, permissions_for
from kbevolve.evaluators.sandbox.usage import FILE_BYTES
from kbevolve.evaluators.worker import landlock
from kbevolve.evaluators.worker.supervisor import SIGNALLED

#: By how much a process that compiles yields to others, as nice(1) takes it: a busy core gives it a tenth of another
#: process's share (sched(7)), so no build starves. While it runs, a kernel may be timed on a GPU, whose host process
#: needs a core at once for each call, and workers start, which use the driver in turn.
COMPILER_NICE = 10

#: The worker program.
PROGRAM = Path(__file__).resolve().parents[1] / "worker" / "__main__.py"

#: The share of the machine's memory that a worker may write, and on the CPU address; and the least that it may address:
#: torch alone maps about 4 GB of addresses.
_MEMORY_SHARE = 0.75
_LEAST_ADDRESS_BYTES = 16 << 30
#: The memory limits of containers (control groups of version 2 and 1).
_CONTAINER_MEMORY = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedWorker:
    """A worker process and the judge's ends of its connection and its output."""

    process: WorkerProcess
    connection: socket.socket
    #: Read end of its standard output and error.
    output: int
    #: Its home, cache, temporary and working directory; to be removed after its end.
    directory: Path
    #: Whether it runs inside bubblewrap.
    bubblewrap: bool


def start(
    device: Device,
    server: ForkServer | None = None,
    *,
    built: Path | None = None,
    connections: int = 0,
    compiles: bool = False,
) -> LaunchedWorker:
    """Start a worker in a session of its own.

    Args:
        device: that it works on.
        server: forks the worker; None to start a program.
        built: what Triton compiled for itself in another worker (`triton_cache`); this one gets a copy.
        connections: hardware queues of its CUDA context; 0 for the driver's default.
        compiles: it compiles a Triton kernel and opens no device (`worker.triton_compiler`); only with a `server`.

    Raises:
        EvaluatorError: the fork server has died.
    """
    wrapped = bubblewrap.obstacle(device.type) is None
    try:
        directory = directories.make(server.directory if server else None)
    except FileNotFoundError as error:  # another thread found the fork server dead, and removed its directory
        raise did_not_start(error) from None
    ours, theirs = socket.socketpair()
    output, output_write = os.pipe()
    try:
        if built is not None:
            shutil.copytree(built, directories.triton_cache(directory))
        environment = worker_environment(device, directory, os.environ)
        if connections:
            environment[CONNECTIONS] = str(connections)
        if server is not None:
            arguments = _arguments(device, server.files_of(directory), theirs.fileno())
            arguments = _compiling(arguments) if compiles else arguments
            process = server.fork(arguments, environment, directory, ours, theirs, output_write)
        else:
            permissions = permissions_for(device, directory, PROGRAM.parent, os.environ)
            arguments = _arguments(device, permissions.for_landlock(), theirs.fileno())
            with introduced(ours) as introduction:
                supervisor = _popen(arguments, permissions, device.type, directory, environment, theirs, output_write)
                theirs.close()
                process = _below(supervisor, introduction)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(output_write)
    return LaunchedWorker(process=process, connection=ours, output=output, directory=directory, bubblewrap=wrapped)


def open_fork_server(device: Device, *, inductor: bool = False) -> ForkServer | None:
    """A fork server for this device; None where only bubblewrap works, since each worker needs its own bubblewrap.

    `inductor`: whether its workers have imported Inductor, as files of torch.compile do.
    """
    if bubblewrap.obstacle(device.type) is None and not landlock.usable():
        return None
    return _open_fork_server(device.type, device, threads=device.threads, inductor=inductor)


def open_fork_server_early(device_type: str) -> ForkServer | None:
    """A fork server for a device that only torch can describe: both import torch at the same time.

    `ForkServer.allow` tells it later what its workers may use. None where that must be known now, for bubblewrap around
    a process with one of several GPUs, or where workers cannot be forked.
    """
    if bubblewrap.obstacle(device_type) is None and (device_type == "cuda" or not landlock.usable()):
        return None
    return _open_fork_server(device_type, None, threads=len(os.sched_getaffinity(0)), inductor=False)


def fork_server_rights(device: Device | None, directory: Path) -> Permissions:
    """The rights of a fork server with this directory: those of its workers, whose directories are inside."""
    return permissions_for(device, directory, PROGRAM.parent, os.environ)


def _open_fork_server(device_type: str, device: Device | None, *, threads: int, inductor: bool) -> ForkServer:
    directory = directories.make()
    ours, theirs = socket.socketpair()
    try:
        visible = _visible(device_type)
        arguments = {"fork_server": {"socket_fd": theirs.fileno(), "device": visible, "inductor": inductor}}
        rights = fork_server_rights(device, directory)
        environment = program_environment(device_type, directory, os.environ, threads=threads)
        output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the server)
        process = _popen(arguments, rights, device_type, directory, environment, theirs, output.fileno())
        server = ForkServer(process, connection=ours, output=output, directory=directory, inductor=inductor)
        server.allow(rights.for_landlock())
        return server
    except BaseException:
        ours.close()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        theirs.close()


def memory_bytes() -> int:
    """The share of the machine's or the container's memory that a worker or a compiler may use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CONTAINER_MEMORY:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            memory = min(memory, int(Path(name).read_text()))
    return int(memory * _MEMORY_SHARE)


def command(
    arguments: Mapping[str, object], permissions: Permissions, device_type: str, directory: Path, *flags: str
) -> list[str]:
    """The command that runs the worker program, in bubblewrap where that works; `flags` are the interpreter's."""
    wrapped = bubblewrap.obstacle(device_type) is None
    outside = bubblewrap.command(permissions, device_type, directory) if wrapped else []
    return [*outside, sys.executable, *flags, str(PROGRAM), json.dumps(arguments)]


@contextlib.contextmanager
def judge_handle() -> Iterator[int]:
    """A pidfd of this process, for a supervisor: unlike an id it works in every namespace, and is never used again."""
    handle = os.pidfd_open(os.getpid())
    try:
        yield handle
    finally:
        os.close(handle)


def _arguments(device: Device, files: Mapping[str, object], socket_fd: int) -> dict[str, object]:
    """The arguments of the worker program."""
    memory = memory_bytes()
    confinement: dict[str, object] = {
        "file_bytes": FILE_BYTES,
        "address_bytes": max(_LEAST_ADDRESS_BYTES, memory) if device.type == "cpu" else None,
        "data_bytes": memory,
        "sockets": device.type == "cuda",
        "isolated": device.type == "cpu" and bubblewrap.obstacle("cpu") is None,
        "files": files,
    }
    arguments: dict[str, object] = {"socket": socket_fd, "device": _visible(device.type), "threads": device.threads}
    return arguments | {"confinement": confinement}


def _compiling(arguments: Mapping[str, Any]) -> dict[str, object]:
    """A worker's arguments, for a process that only compiles."""
    confinement = arguments["confinement"]
    files = confinement["files"] | {"devices": list(DEVICES)}
    return {**arguments, "confinement": confinement | {"files": files}, "compiles": True, "nice": COMPILER_NICE}


def _popen(
    arguments: Mapping[str, object],
    permissions: Permissions,
    device_type: str,
    directory: Path,
    environment: Mapping[str, str],
    theirs: socket.socket,
    output: int,
) -> subprocess.Popen[bytes]:
    """Run the worker program below a supervisor; it prints to `output`."""
    with judge_handle() as judge:
        return subprocess.Popen(
            # -P: the program's folder must not be first in the candidate's module search.
            command({"judge": judge, **arguments}, permissions, device_type, directory, "-P", "-u"),
            cwd=directory / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(), judge),
            start_new_session=True,
        )


def _below(supervisor: subprocess.Popen[bytes], introduction: Callable[[], int]) -> WorkerProcess:
    """The worker that a supervisor of its own has started."""

    def collect() -> int:
        code = supervisor.wait()
        return SIGNALLED - code if code > SIGNALLED else code

    try:
        return WorkerProcess(introduction(), collect)
    except (OSError, StopIteration):  # it ended before; what it printed shows the cause
        return WorkerProcess(supervisor.pid, collect)


def _visible(device_type: str) -> str:
    return "cpu" if device_type == "cpu" else "cuda:0"  # the only GPU that it sees
