"""What a process does to itself before untrusted code runs: it gives up most rights.

Every step works without privileges and cannot be undone. A step that the machine does not support is left out; the
returned level says what was reached.
"""

import contextlib
import ctypes
import os
import resource
from typing import Any

from kbevolve.evaluators.worker.landlock import SCOPED, restrict_files
from kbevolve.evaluators.worker.seccomp import filter_calls

_PR_SET_NO_NEW_PRIVS = 38
#: `_LINUX_CAPABILITY_VERSION_3`: capabilities as two words of 32 bits each.
_CAPABILITIES_VERSION = 0x20080522
#: Open files: ninja with a compiler for each core needs dozens. The judge's own limit may be far higher.
_OPEN_FILES = 4096


def confine(
    *,
    file_bytes: int,
    address_bytes: int | None,
    data_bytes: int,
    sockets: bool,
    isolated: bool,
    files: dict[str, Any],
) -> str:
    """Confine this process and all it will start; returns the level, e.g. "landlock 7, seccomp, limits".

    Args:
        file_bytes: largest file that may be written.
        address_bytes: address space; None for no limit, because CUDA reserves terabytes of addresses.
        data_bytes: private writable memory, whether it was touched or not.
        sockets: whether Unix sockets can be made besides pairs, as CUDA's driver may do. They can connect to nothing.
        isolated: whether it sees no process but its own, in a namespace of processes.
        files: `readable`, `listable`, `devices` and `writable` of `restrict_files`.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_DATA, data_bytes)
    if address_bytes is not None:
        _limit(resource.RLIMIT_AS, address_bytes)
    # If memory runs out all the same, Linux kills the candidate and not the judge.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    _give_up_capabilities(libc)
    level = ["limits"]
    # The filter comes last, because it refuses calls that are made above.
    version = restrict_files(**files)
    # A rule of Landlock for a folder of /proc is lost when Linux drops the folder from its cache. An open one stays.
    with contextlib.suppress(OSError):
        os.open("/proc/self", os.O_PATH | os.O_CLOEXEC)
    if filter_calls(sockets=sockets, signals=isolated or version >= SCOPED):
        level.insert(0, "seccomp")
    if version:
        level.insert(0, f"landlock {version}")
    return ", ".join(level)


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Root without capabilities is an ordinary owner of root's files: no raw memory or disks, no clocks.

    With CAP_SYS_ADMIN, Linux lets a process read the environment of others in spite of Landlock.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())  # effective, permitted, inheritable; then the same of the upper 32


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))
