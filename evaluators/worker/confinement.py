"""What the worker does to itself before anything untrusted runs: it dies with the judge and stays within limits."""

import contextlib
import ctypes
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def confine(*, parent: int, file_bytes: int, address_bytes: int | None) -> None:
    """Apply limits to this process and all it will start.

    Args:
        parent: process id of the judge; when it is gone already, this process ends at once.
        file_bytes: largest file that may be written.
        address_bytes: address space; None for no limit, which CUDA needs (it reserves terabytes of addresses).
    """
    libc = ctypes.CDLL(None)
    # SIGKILL when the thread that started us ends: kill -9 of the judge leaves no orphan holding the device.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    if address_bytes is not None:
        _limit(resource.RLIMIT_AS, address_bytes)
    # When memory runs out all the same, the kernel takes the candidate and not the judge.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))
