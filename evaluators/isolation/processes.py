"""Processes of this machine as /proc shows them: who belongs to a worker, and how many they are."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


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


def processes() -> Iterator[Process]:
    """All that can be seen. About 15 µs for each."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                yield _parse(int(entry.name), Path(f"/proc/{entry.name}/stat").read_bytes())


def members(leader: int) -> list[Process]:
    """Living processes of the group or the session of a worker."""
    return [found for found in processes() if leader in (found.group, found.session) and not found.ended]


def processor_seconds(leader: int) -> float:
    """Processor time of all threads of the living members together; waiting for a processor is none of it."""
    total = 0.0
    for member in members(leader):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The clock of another process, to the nanosecond; how its number is made is in clock_getcpuclockid(3).
            total += time.clock_gettime(~member.pid << 3 | 2)
    return total


def stands(pid: int) -> bool:
    """Whether a process has been stopped, or has ended."""
    try:
        return _state(Path(f"/proc/{pid}/stat").read_bytes()) in b"TtZX"
    except OSError:
        return True


def strays(directory: Path) -> list[int]:
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
