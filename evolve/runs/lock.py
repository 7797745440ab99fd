"""One session of a run at a time: two processes that continue one run would both create its next child."""

import fcntl
import hashlib
import os
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


@contextmanager
def run_lock(archive: Archive, run: Run, *, patience: float = 0.0) -> Iterator[None]:
    """Lock a run among the processes of this user on this machine; a process that dies releases it.

    Raises:
        UsageError: another process still holds it after `patience` seconds.
    """
    name = hashlib.sha256(f"{Path(archive.path).absolute()}\n{run.id}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"kbevolve-{os.getuid()}-run-{name}.lock")
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
