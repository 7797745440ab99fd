"""Processes of this machine as /proc shows them: which belong to a worker, and how much processor time they had."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

#: Seconds between two counts of the processes of a worker or a compiler.
WATCH_SECONDS = 0.5
#: Seconds until killed processes are gone. It takes milliseconds, and longer when their memory is large.
_EXIT_SECONDS = 5.0
#: States of a thread that was stopped or has exited; "" where nothing is left of it.
_STOPPED = ("", "T", "t", "Z", "X")
#: Longer than any file about a process or a thread.
_STAT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, when it was read."""

    pid: int
    parent: int
    #: Process group and session.
    group: int
    session: int
    #: All its threads have exited, and its parent has not collected it yet.
    ended: bool
    #: Living and exited ones that it still has; 1 for an ended process.
    threads: int


class ProcessorTime(NamedTuple):
    """Processor time of all threads of a worker so far."""

    #: Seconds on a processor.
    spent: float
    #: Seconds that they were runnable and had no processor; 0 where this system does not report it.
    waited: float


class ProcessTable:
    """A cached list of all processes, shared by the threads that watch workers and compilers.

    One reading opens a file for each process of the machine, hundreds of them, and releases the interpreter lock at
    each. If a dozen threads read for themselves, they keep the interpreter from the thread that times a kernel (half of
    the interpreter's time, on a GPU with 14 kernels in progress).
    """

    def __init__(self, *, seconds: float) -> None:
        """`seconds`: age at which the list is read again."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._processes: tuple[Process, ...] = ()
        self._read_at = float("-inf")

    def members(self, leader: int) -> list[Process]:
        """The function `members`, at most `seconds` ago."""
        with self._lock:
            if time.monotonic() - self._read_at >= self._seconds:
                self._processes = tuple(processes())
                self._read_at = time.monotonic()
            return _of(leader, self._processes)


#: The list of this process.
RECENT = ProcessTable(seconds=WATCH_SECONDS)


def processes() -> Iterator[Process]:
    """All visible processes. About 8 µs for each."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it exited meanwhile
                    yield _parse(int(entry.name), _stat(entry.name))


def members(leader: int) -> list[Process]:
    """Living processes of a worker's process group or session."""
    return _of(leader, processes())


def resident_bytes(process: Process) -> int:
    """Its memory in pages that are present; 0 when it has exited."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_read(f"/proc/{process.pid}/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def has_group(leader: int) -> bool:
    """Whether its process group has any process, even one that exited and was not collected."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def processor_time(leader: int) -> ProcessorTime:
    """Processor time of the living members."""
    spent = waited = 0.0
    for member in members(leader):
        with contextlib.suppress(OSError):  # it exited meanwhile
            # The processor clock of another process, in nanoseconds; clock_getcpuclockid(3) defines this number.
            spent += time.clock_gettime(~member.pid << 3 | 2)
            waited += sum(_waited_seconds(member.pid, thread) for thread in os.listdir(f"/proc/{member.pid}/task"))
    return ProcessorTime(spent, waited)


def _waited_seconds(pid: int, thread: str) -> float:
    """A thread's schedstat holds nanoseconds on a processor, nanoseconds of waiting for one, and time slices."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return 1e-9 * int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
    return 0.0


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, has exited, or waits for a child that was stopped with it.

    A parent that starts a program by vfork, as Python does, cannot be stopped until the child executes the program. If
    both get the signal before that, the child stops and the parent waits until both are resumed.
    """
    state = _state(pid)
    if state == "Z":  # its first thread; others may live
        with contextlib.suppress(OSError):
            return all(_state(f"{pid}/task/{thread}") in _STOPPED for thread in os.listdir(f"/proc/{pid}/task"))
    return state in _STOPPED or (state == "D" and any(_state(child) == "T" for child in _children(pid)))


def _children(pid: int) -> list[int]:
    """Children of a process's first thread; none where this system does not report them."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill(found: Iterable[Process]) -> None:
    """Kill processes; ignores those that have exited."""
    for process in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


def kill_all(find: Callable[[], Sequence[Process]]) -> None:
    """Kill what `find` returns until it returns none."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while (left := find()) and time.monotonic() < deadline:
        kill(left)
        time.sleep(0.002)


def _of(leader: int, found: Iterable[Process]) -> list[Process]:
    return [process for process in found if leader in (process.group, process.session) and not process.ended]


def _read(name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        return os.read(descriptor, _STAT_BYTES)
    finally:
        os.close(descriptor)


def _stat(pid: int | str) -> list[str]:
    """Fields of /proc/PID/stat from the third, the state (proc(5)). The second is a name of any characters."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def _state(pid: int | str) -> str:
    """One letter; "" for a process that has exited."""
    with contextlib.suppress(OSError):
        return _stat(pid)[0]
    return ""


def _parse(pid: int, fields: list[str]) -> Process:
    parent, group, session = map(int, fields[1:4])
    threads = int(fields[17])
    # The first thread of a process may exit before the others.
    ended = fields[0] in ("Z", "X") and threads <= 1
    return Process(pid=pid, parent=parent, group=group, session=session, ended=ended, threads=threads)
