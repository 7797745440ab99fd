"""Processes of this machine as /proc shows them: who belongs to a worker, and how many they are."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

#: Seconds between two counts of a worker's or a compiler's processes.
WATCH_SECONDS = 0.5
#: Bytes that a file about a process or a thread has at most.
_STAT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, at the moment it was looked at."""

    pid: int
    parent: int
    #: Process group and session.
    group: int
    session: int
    #: Ended already, and only waiting for its parent to notice.
    ended: bool


class ProcessorTime(NamedTuple):
    """Of all threads of a worker together, so far."""

    #: Seconds that they had a processor.
    spent: float
    #: Seconds that they could have gone on and had none; 0 where this system does not tell.
    waited: float


class ProcessTable:
    """Who lives, by one look now and then for everybody who watches a worker.

    A look opens a file for each process of the machine, hundreds of them, and gives up the interpreter at each: a dozen
    threads that look for themselves keep it from the thread that times a kernel (half of the interpreter's time, seen
    on a GPU with 14 kernels under way).
    """

    def __init__(self, *, seconds: float) -> None:
        """`seconds`: age at which a look is too old."""
        self._seconds = seconds
        self._looking = threading.Lock()
        self._seen: tuple[Process, ...] = ()
        self._looked = float("-inf")

    def members(self, leader: int) -> list[Process]:
        """As `members`, a moment ago."""
        with self._looking:
            if time.monotonic() - self._looked >= self._seconds:
                self._seen = tuple(processes())
                self._looked = time.monotonic()
            return _of(leader, self._seen)


def processes() -> Iterator[Process]:
    """All that can be seen. About 8 µs for each."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it ended meanwhile
                    yield _parse(int(entry.name), _stat(entry.name))


def members(leader: int) -> list[Process]:
    """Living processes of the group or the session of a worker."""
    return _of(leader, processes())


def has_group(leader: int) -> bool:
    """Whether anybody is left in its process group, be it one that ended and was not waited for."""
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
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The clock of another process, to the nanosecond; how its number is made is in clock_getcpuclockid(3).
            spent += time.clock_gettime(~member.pid << 3 | 2)
            waited += sum(_waited_seconds(member.pid, thread) for thread in os.listdir(f"/proc/{member.pid}/task"))
    return ProcessorTime(spent, waited)


def _waited_seconds(pid: int, thread: str) -> float:
    """Of a thread: nanoseconds on a processor, nanoseconds of waiting for one and slices are in its schedstat."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return 1e-9 * int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
    return 0.0


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped, has ended, or waits for a child that has been stopped with it.

    A process that starts another by vfork, as Python does, waits beyond the reach of signals until that one runs its
    program. Stopped together before it does, the child stops and the parent only waits, until both are let go on.
    """
    try:
        state = _state(_stat(pid))
    except OSError:
        return True
    return state in b"TtZX" or (state == b"D" and any(map(_in_state_t, _children(pid))))


def _children(pid: int) -> list[int]:
    """Of a process's first thread; none where this system does not tell."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _in_state_t(pid: int) -> bool:
    try:
        return _state(_stat(pid)) == b"T"
    except OSError:
        return False


def leaked(directory: Path) -> list[int]:
    """Processes that a worker with this directory left behind: it is their home, or they work in it.

    For what left the group and the session, where nothing kept it from doing so.
    """
    mark, place = f"HOME={directory}/".encode(), f"{directory}/"
    found = []
    for process in processes():
        if process.ended or process.pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            at_home = any(
                entry.startswith(mark) for entry in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            )
            if at_home or os.readlink(f"/proc/{process.pid}/cwd").startswith(place):
                found.append(process.pid)
    return found


def kill(pids: list[int]) -> None:
    """End processes, those that are gone already passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _of(leader: int, found: Iterable[Process]) -> list[Process]:
    return [process for process in found if leader in (process.group, process.session) and not process.ended]


def _stat(pid: int | str) -> bytes:
    return _read(f"/proc/{pid}/stat")


def _read(name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        return os.read(descriptor, _STAT_BYTES)
    finally:
        os.close(descriptor)


def _state(line: bytes) -> bytes:
    """One letter, the third field of /proc/PID/stat."""
    return line.rpartition(b")")[2].split()[0]


def _parse(pid: int, line: bytes) -> Process:
    """Fields of /proc/PID/stat (proc(5)); the second is a name that may hold anything, spaces and brackets too."""
    fields = line.rpartition(b")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        ended=fields[0] in (b"Z", b"X"),
    )
