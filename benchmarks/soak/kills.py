"""Kills what belongs to one child from outside, at a moment that the plan names."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.soak.faults import SoakChild
from benchmarks.soak.leaks import descendants
from kbevolve.evaluators.sandbox import process_table

#: Seconds between two looks for the process: a compiler lives for half a second.
_LOOK_SECONDS = 0.01

_Finder = Callable[[SoakChild], list[int]]


@contextlib.contextmanager
def killed_from_outside(child: SoakChild) -> Iterator[None]:
    """While the child is judged, wait for the process that is to be killed, and kill it."""
    if not child.fault.kills:
        yield
        return
    over = threading.Event()
    find = _worker if child.fault.kills == "worker" else _compilers
    thread = threading.Thread(target=_kill, args=(find, child, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _kill(find: _Finder, child: SoakChild, over: threading.Event) -> None:
    while not over.wait(_LOOK_SECONDS):
        if find(child):
            # A compiler would have ended meanwhile.
            if child.fault.kills == "worker" and over.wait(child.delay):
                return
            for pid in find(child):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return


def _mark(child: SoakChild) -> bytes:
    return child.kernel.source.partition("Child ")[2].partition(".")[0].encode()


def _worker(child: SoakChild) -> list[int]:
    """The process of the worker that holds the child's file, which lies in the folder that it works in."""
    mark = b'"child-' + _mark(child) + b'"'
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/cwd/candidate.py").read_bytes():
                found.append(pid)
    return sorted(found)[:1]


def _compilers(child: SoakChild) -> list[int]:
    """Compilers proper (not ninja, not their drivers) that work on the child's source."""
    mark = b"child_" + _mark(child)
    found = []
    for process in process_table.processes():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"cc1plus") and any(mark in word for word in command):
                found.append(process.pid)
    return found
