"""One session of a run at a time: two processes that continue one run would both create its next child."""

import fcntl
import hashlib
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError

#: Seconds between two attempts to take the lock.
_PAUSE = 0.1
#: Linux's `struct flock`: type, whence, start, length, process.
_FLOCK = "hhqqi4x"


@contextmanager
def run_lock(archive: Archive, run: Run, *, patience: float = 0.0) -> Iterator[None]:
    """Lock a run among the processes of this user on this machine; a process that dies releases it.

    Raises:
        UsageError: another process still holds it after `patience` seconds.
    """
    path = _path(archive, run)
    deadline = monotonic() + patience
    while (lock := _taken(path)) is None:
        if monotonic() >= deadline:
            raise UsageError(
                f"another process works on run {run.id}; wait for it, or stop it (Ctrl-C keeps everything)"
            )
        sleep(_PAUSE)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def lock_holder(archive: Archive, run: Run) -> int | None:
    """The process of this user on this machine that works on a run; None without one. It takes no lock itself."""
    try:
        lock = os.open(_path(archive, run), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else process
    finally:
        os.close(lock)


def _path(archive: Archive, run: Run) -> Path:
    name = hashlib.sha256(f"{Path(archive.path).resolve()}\n{run.id}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"kbevolve-{os.getuid()}-run-{name}.lock")


def _taken(path: Path) -> int | None:
    """The open and locked file; None while another process holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not flock: forked workers that survive a kill of this process must not hold the lock.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and path.stat().st_ino == os.fstat(lock).st_ino:
            return lock  # else its holder has just deleted it: another process would lock a new file
    except OSError:
        pass
    os.close(lock)
    return None
