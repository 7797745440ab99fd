"""Runs one confined compiler: no network, no GPU, only its own directory writable, and limits on time and memory."""

import contextlib
import functools
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kbevolve.evaluators.sandbox import bubblewrap, directories, launch
from kbevolve.evaluators.sandbox.environment import allowed
from kbevolve.evaluators.sandbox.permissions import (
    FOLDER_VARIABLES,
    LIST_VARIABLES,
    PROGRAM_VARIABLES,
    permissions_for,
)
from kbevolve.evaluators.sandbox.process_table import RECENT, WATCH_SECONDS, kill_all, members, resident_bytes

#: Bytes kept of a compiler's output. A template's errors can be endless; the first ones matter.
_MOST_OUTPUT = 200_000
#: Characters of a line that are searched; those of code have up to some hundred.
_MOST_LINE = 1000
#: Largest file that is written: a precompiled header of torch has 0.3 GB, its objects and texts a few megabytes.
_FILE_BYTES = 256 << 20
#: Bytes on disk of all its files together.
_DISK_BYTES = 3 << 30
#: Largest product that is read: libraries have 0.1 to 30 MB.
_PRODUCT_BYTES = 64 << 20
#: Memory of each process: nvcc needs 3.1 GB for torch/extension.h.
_MEMORY_BYTES = 6 << 30
#: A shell and bubblewrap report a signal by an exit code this far above it.
_SIGNALLED = 128
#: Processes that it may have; nvcc has up to five.
_MOST_PROCESSES = 64
#: With fewer seconds left no command is started.
_LEAST_SECONDS = 0.5
#: Prefix of the directories' names; the id of the building process follows.
DIRECTORY_PREFIX = "kbevolve-build-"
#: Variables that decide what compilers may read.
_FOLDERS_DEPEND_ON = ("PATH", *PROGRAM_VARIABLES, *FOLDER_VARIABLES, *LIST_VARIABLES)
#: Texts of errors that are the machine's: no memory, disk or processes.
_LACKING = (
    *("out of memory", "cannot allocate memory", "virtual memory exhausted", "killed signal", "bad_alloc"),
    *("no space left on device", "resource temporarily unavailable"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerRun:
    """How a compiler ended."""

    #: Exit code; negative for a signal.
    code: int
    #: Its output, cut at the end when long.
    log: str
    #: Wall clock.
    seconds: float
    timed_out: bool = False

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended for lack of memory, disk or processes, so that another attempt may succeed."""
        killed = self.code in (-signal.SIGKILL, _SIGNALLED + signal.SIGKILL)
        return killed or any(text in self.log.lower() for text in _LACKING)


@contextmanager
def build_directory() -> Iterator[Path]:
    """A directory for one compiler, removed afterwards; it works in ``work`` inside, and its product is in ``out``."""
    directory = directories.make(prefix=DIRECTORY_PREFIX)
    (directory / "out").mkdir()
    try:
        yield directory
    finally:
        directories.remove(directory)


def made(directory: Path, name: str, *, most_bytes: int = _PRODUCT_BYTES) -> bytes | None:
    """What a compiler left in ``out``; None for nothing, a link, a special file, or too much.

    All of the compiler's processes have ended, so nothing changes between the two steps.
    """
    path = directory / "out" / name
    if path.resolve() != directory.resolve() / "out" / name or not path.is_file():
        return None
    return path.read_bytes() if path.stat().st_size <= most_bytes else None


def short_lines(text: str) -> str:
    """A compiler's text with the ends of long lines left out, so that searching a line takes little time."""
    return "\n".join(line[:_MOST_LINE] for line in text.split("\n"))


def is_readable(path: str) -> bool:
    """Whether every compiler may read this absolute path."""
    return readable_paths()(path)


def readable_paths() -> Callable[[str], bool]:
    """`is_readable`, with the variables as they are now: for thousands of paths."""
    variables = tuple(map(os.environ.get, _FOLDERS_DEPEND_ON))
    return lambda path: bool(path) and _is_readable(path, variables)


@functools.lru_cache(maxsize=1 << 14)
def _is_readable(path: str, variables: tuple[str | None, ...]) -> bool:
    return f"{os.path.realpath(path)}/".startswith(_readable_folders(variables))


@functools.lru_cache(maxsize=8)
def _readable_folders(_: tuple[str | None, ...]) -> tuple[str, ...]:
    listed = permissions_for(None, Path("/nonexistent"), launch.PROGRAM.parent, os.environ).for_landlock()["readable"]
    return tuple(f"{os.path.realpath(path)}/" for path in listed if not path.startswith(("/proc/", "/sys/")))


def run(
    command: Sequence[str],
    directory: Path,
    seconds: float,
    readable: Sequence[Path] = (),
    *,
    nice: int = 0,
    file_bytes: int = _FILE_BYTES,
    stop: threading.Event | None = None,
) -> CompilerRun:
    """Run one command until it ends or its time is over. It dies with this process, and all that it started with it.

    Args:
        command: program and arguments; relative paths start at ``directory/work``.
        directory: from `build_directory`.
        seconds: time limit; with less than half a second left, the command is not started.
        readable: what it may read besides the system's, torch's and the compilers' own folders.
        nice: by how much it yields to other processes, as nice(1) takes it.
        file_bytes: largest file that it may write.
        stop: ends it early, within half a second.
    """
    if seconds < _LEAST_SECONDS:
        return CompilerRun(code=-signal.SIGKILL, log="", seconds=0.0, timed_out=True)
    began = time.monotonic()
    with launch.judge_handle() as judge:
        process = subprocess.Popen(
            _confined(command, directory, readable, nice=nice, file_bytes=file_bytes, judge=judge),
            cwd=directory / "work",
            env=_environment(directory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(judge,),
            start_new_session=True,
        )
    try:
        output, in_time = _read(process, directory, began + seconds, stop or threading.Event())
    finally:
        _kill(process)
    log = bytes(output).decode(errors="replace")
    return CompilerRun(code=process.returncode, log=log, seconds=time.monotonic() - began, timed_out=not in_time)


def _read(
    process: subprocess.Popen[bytes], directory: Path, deadline: float, stop: threading.Event
) -> tuple[bytearray, bool]:
    """The output until it ends or takes too much, and whether that was in time."""
    assert process.stdout is not None
    output, counted = bytearray(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or stop.is_set():
                return output, False
            if selector.select(min(left, WATCH_SECONDS)):
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                output += data[: max(0, _MOST_OUTPUT - len(output))]
            if time.monotonic() - counted >= WATCH_SECONDS:
                if excess := _excess(process, directory):
                    return output + b"\nerror: " + excess, True
                counted = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, deadline - time.monotonic()))
    return output, process.returncode is not None


def _excess(process: subprocess.Popen[bytes], directory: Path) -> bytes:
    """What of the machine it takes too much of; nothing while it takes little. Its limits hold for each process."""
    found = RECENT.members(process.pid)
    if len(found) > _MOST_PROCESSES:
        return b"it started too many processes"
    if sum(resident_bytes(member) for member in found) > launch.memory_bytes():
        return b"out of memory"
    written = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                written += 512 * os.lstat(f"{folder}/{name}").st_blocks
    return b"it wrote too much" if written > _DISK_BYTES else b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, including what the compiler left behind; returns when all of it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    kill_all(lambda: members(process.pid))


def _confined(
    command: Sequence[str], directory: Path, readable: Sequence[Path], *, nice: int, file_bytes: int, judge: int
) -> list[str]:
    """The command inside the worker program, which confines itself first, and inside bubblewrap."""
    permissions = permissions_for(None, directory, launch.PROGRAM.parent, os.environ)
    permissions = replace(permissions, roots=(*permissions.roots, *readable))
    confinement = {
        "file_bytes": file_bytes,
        "address_bytes": None,
        "data_bytes": min(_MEMORY_BYTES, launch.memory_bytes()),
        "sockets": False,
        "isolated": bubblewrap.obstacle("cpu") is None,
        "files": permissions.for_landlock(),
    }
    arguments = {"judge": judge, "nice": nice, "confinement": confinement}
    return [*launch.command(arguments, permissions, "cpu", directory, "-I", "-S"), *command]


def _environment(directory: Path) -> dict[str, str]:
    return allowed(os.environ) | {
        "HOME": str(directory / "home"),
        "TMPDIR": str(directory / "tmp"),
        "CUDA_VISIBLE_DEVICES": "",
        "LC_ALL": "C",  # programs read the messages
    }
