"""The supervisor of a confined program: when the program or the judge ends, nothing lives on that the program started.

A small process above the program. Linux gives it every orphan among the program's descendants (PR_SET_CHILD_SUBREAPER,
prctl(2)), however it renamed itself, changed its session or closed its descriptors. It never runs a candidate's line,
and a candidate's Landlock rules keep signals from it.
"""

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Container
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: Added to a signal's number in an exit code, as a shell does.
SIGNALLED = 128


def supervise(judge: int) -> None:
    """Fork: the parent becomes the supervisor and never returns; the child, which returns, dies with it.

    `judge` is a pidfd of the judge, which works in every namespace. The child closes it.
    """
    supervisor = os.getpid()
    adopt_orphans()
    child = os.fork()
    if child:
        code = _wait(child, judge)
        kill_descendants()
        os._exit(code if code >= 0 else SIGNALLED - code)
    os.close(judge)
    die_with(supervisor)


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Be killed when the parent ends; exit at once if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def kill_descendants(keep: Container[int] = (), *, seconds: float = float("inf")) -> None:
    """Kill all that this process started or adopted; returns when it is gone, or after so many seconds.

    `keep`: children that stay, with their descendants.
    """
    deadline = time.monotonic() + seconds
    while (found := _descendants(keep)) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # one that is stopped starts no other meanwhile
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        time.sleep(0.001)
        for pid in found:
            with contextlib.suppress(ChildProcessError):  # a grandchild; it will be adopted
                os.waitpid(pid, os.WNOHANG)


def _wait(child: int, judge: int) -> int:
    """Reap children until this one has ended, and return its exit code; minus SIGKILL when the judge ended first."""
    _hold_nothing_but(judge)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = select.poll()
    for source in (judge, woken):
        waiting.register(source, select.POLLIN)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid:
            continue
        if any(source == judge for source, _ in waiting.poll()):
            return -signal.SIGKILL
        os.read(woken, 4096)


def _hold_nothing_but(kept: int) -> None:
    """Close the other descriptors, so that the judge sees the end of the program's connection and output."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _descendants(keep: Container[int]) -> list[int]:
    """Ids of all descendants, ended ones included, without `keep` and theirs."""
    with contextlib.suppress(OSError):  # not every Linux has this list; it spares reading about every process
        own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if all(int(pid) in keep for pid in own):
            return []
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [pid for pid in children.get(os.getpid(), ()) if pid not in keep]
    for pid in found:  # grows meanwhile
        found += children.get(pid, ())
    return found
