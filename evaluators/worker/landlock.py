"""Landlock: from now on this process and all it starts may open only the listed parts of the file system.

The kernel's own access control for programs without privileges (Linux 5.13 and newer, Documentation/userspace-api/
landlock.rst). It also keeps the process from reading the memory, the environment and the descriptors of processes
outside, and in newer versions from signalling them.
"""

import contextlib
import ctypes
import os
import stat
from collections.abc import Sequence

#: System calls, the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

#: Rights to files and folders, as the kernel numbers them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
#: Rights that apply to files.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL

_READING = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _DEVICE_CONTROL

#: Version of the interface -> its last right: renaming into another folder (2), truncating (3), device control (5).
_LAST_RIGHT = {2: 13, 3: 14, 4: 14, 5: 15}
#: Binding and connecting TCP sockets, from version 4.
_TCP = 0b11
#: Abstract Unix sockets and signals of processes outside, from this version.
SCOPED = 6
_SCOPE_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
#: From version 7: refusals are not logged, so a hostile program cannot fill the log.
_QUIET = 1 << 0

#: Version 1 forbids to rename from one folder into another, which Triton's and torch's caches do.
_OLDEST = 2
#: The newest version that this file uses.
_NEWEST = 7


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Version of the kernel's interface; 0 without Landlock."""
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def usable() -> int:
    """The version that `restrict_files` would apply; 0 when there is none, or only one that is too old."""
    found = min(version(), _NEWEST)
    return found if found >= _OLDEST else 0


def restrict_files(
    *,
    readable: Sequence[str],
    listable: Sequence[str],
    devices: Sequence[str],
    writable: Sequence[str],
) -> int:
    """Confine this process; returns the version that applies from now on, 0 for none.

    `no_new_privs` must be set. Paths that do not exist are ignored.

    Args:
        readable: files and folders with all below: read, list and execute.
        listable: folders that may be listed and no more, with all below.
        devices: special files and folders of them: read, write, control.
        writable: folders in which everything is allowed.
    """
    level = usable()
    if not level:
        return 0
    handled = (1 << (_LAST_RIGHT[min(level, max(_LAST_RIGHT))] + 1)) - 1
    scopes = _SCOPE_SIGNALS | _SCOPE_SOCKETS
    wanted = _Ruleset(files=handled, network=_TCP if level >= 4 else 0, scopes=scopes if level >= SCOPED else 0)
    # Older kernels accept a longer structure than they know when its unknown part is zero, as it is here.
    ruleset = _call(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)), ctypes.c_uint32(0))
    if ruleset < 0:
        return 0
    try:
        for paths, rights in ((readable, _READING), (listable, _READ_DIR), (devices, _DEVICE), (writable, handled)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        flags = _QUIET if level >= 7 else 0
        return level if _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(flags)) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(opened).st_mode):
                rights &= _OF_FILES
            rule = _PathRule(rights=rights, folder=opened)
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
        finally:
            os.close(opened)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result: int = _LIBC.syscall(ctypes.c_long(number), *arguments)
    return result
