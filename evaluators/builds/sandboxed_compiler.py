"""Runs one compiler under guard: no network, no GPU, nothing writable but its own folder, and never for too long."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kbevolve.evaluators.sandbox import bubblewrap, directories, launch
from kbevolve.evaluators.sandbox.environment import allowed
from kbevolve.evaluators.sandbox.permissions import permissions_for
from kbevolve.evaluators.sandbox.process_table import WATCH_SECONDS, ProcessTable, kill, members

#: Bytes kept of what a compiler says. A template's errors can be endless; the first ones matter.
_MOST_SAID = 200_000
#: Largest file: a precompiled header of torch is 0.8 GB, a library a few megabytes.
FILE_BYTES = 1 << 30
#: Memory of each process: torch/extension.h in nvcc takes 3.1 GB.
_MEMORY_BYTES = 6 << 30
#: A shell and bubblewrap tell a signal by an exit code this far above it.
_SIGNALLED = 128
#: Processes that it may have; nvcc has up to five.
_MOST_PROCESSES = 64
#: Seconds that killed processes have to vanish; they need milliseconds, on a busy machine more.
_VANISH_SECONDS = 5.0
#: Then follows the process id of whoever builds.
DIRECTORY_PREFIX = "kbevolve-build-"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerRun:
    """How a compiler ended."""

    #: Exit code; negative for a signal.
    code: int
    #: What it said, cut at the end when long.
    said: str
    #: Wall clock.
    seconds: float
    timed_out: bool = False

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended for want of memory (or disk, or processes), which another time there may be."""
        words = (
            *("out of memory", "cannot allocate memory", "virtual memory exhausted", "killed signal", "bad_alloc"),
            *("no space left on device", "resource temporarily unavailable"),
        )
        killed = self.code in (-signal.SIGKILL, _SIGNALLED + signal.SIGKILL)
        return killed or any(word in self.said.lower() for word in words)


@contextmanager
def build_directory() -> Iterator[Path]:
    """A folder for one compiler, gone afterwards; it works in ``work`` inside."""
    directory = directories.make(prefix=DIRECTORY_PREFIX)
    try:
        yield directory
    finally:
        directories.remove(directory)


def remove_stale_directories() -> None:
    """End and remove what processes that were killed left behind."""
    directories.remove_stale(prefix=DIRECTORY_PREFIX)


def run(
    command: Sequence[str],
    directory: Path,
    *,
    seconds: float,
    readable: Sequence[Path] = (),
    nice: int = 0,
    stop: threading.Event | None = None,
    process_table: ProcessTable | None = None,
) -> CompilerRun:
    """Run one command to its end, or to the end of its time.

    It dies with the *thread* that calls this.

    Args:
        command: program and arguments; relative paths are meant from ``directory/work``.
        directory: of `build_directory`.
        seconds: it may take.
        readable: folders that it may read beside the system's, torch's and the compilers' own.
        nice: by how much it yields to other processes, as nice(1) takes it.
        stop: ends it as the end of its time does, within half a second.
        process_table: that counts its processes; None for one of its own.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        _guarded(command, directory, readable, nice),
        cwd=directory / "work",
        env=_environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        counter = process_table or ProcessTable(seconds=WATCH_SECONDS)
        said, in_time = _listen(process, began + seconds, stop or threading.Event(), counter)
    finally:
        _end(process)
    text = bytes(said).decode(errors="replace")
    return CompilerRun(code=process.returncode, said=text, seconds=time.monotonic() - began, timed_out=not in_time)


def _listen(
    process: subprocess.Popen[bytes], deadline: float, stop: threading.Event, process_table: ProcessTable
) -> tuple[bytearray, bool]:
    """What it says until it ends, and whether it ended in time and with few helpers."""
    assert process.stdout is not None
    said, counted = bytearray(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or stop.is_set():
                return said, False
            if selector.select(min(left, WATCH_SECONDS)):
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    break
                said += data[: max(0, _MOST_SAID - len(said))]
            if time.monotonic() - counted >= WATCH_SECONDS:
                if len(process_table.members(process.pid)) > _MOST_PROCESSES:
                    return said + b"\nerror: it started too many processes", True
                counted = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, deadline - time.monotonic()))
    return said, process.returncode is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group, also what the compiler left behind; returns when all of it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    patience = time.monotonic() + _VANISH_SECONDS
    while (left := members(process.pid)) and time.monotonic() < patience:
        kill([one.pid for one in left])
        time.sleep(0.002)


def _guarded(command: Sequence[str], directory: Path, readable: Sequence[Path], nice: int) -> list[str]:
    wrapped = bubblewrap.obstacle("cpu") is None
    granted = permissions_for(None, directory, launch.PROGRAM.parent, os.environ)
    granted = replace(granted, roots=(*granted.roots, *readable))
    confinement = {
        "parent": None if wrapped else os.getpid(),
        "file_bytes": FILE_BYTES,
        "address_bytes": None,
        "data_bytes": min(_MEMORY_BYTES, launch.memory_bytes()),
        "files": granted.for_landlock(),
    }
    outside = bubblewrap.command(granted, "cpu", directory) if wrapped else []
    orders = json.dumps({"nice": nice, "confinement": confinement})
    return [*outside, sys.executable, "-I", "-S", str(launch.PROGRAM), orders, *command]


def _environment(directory: Path) -> dict[str, str]:
    return allowed(os.environ) | {
        "HOME": str(directory / "home"),
        "TMPDIR": str(directory / "tmp"),
        "CUDA_VISIBLE_DEVICES": "",
        "LC_ALL": "C",  # the messages are read by programs
    }
