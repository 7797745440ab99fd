"""One sitting at a run at a time: two processes that went on with one run would both bear its next child."""

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

#: Seconds between two looks whether the other process has gone.
_PAUSE = 0.1


@contextmanager
def alone_at(archive: Archive, run: Run, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a run alone among the processes of this user on this machine; one that is killed holds nothing any more.

    Args:
        archive: where the run is.
        run: its record.
        patience: seconds to wait for another process.

    Raises:
        UsageError: another process is still at it.
    """
    name = hashlib.sha256(f"{Path(archive.path).absolute()}\n{run.id}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"kbevolve-{os.getuid()}-run-{name}.lock")
    deadline = monotonic() + patience
    while (lock := _taken(path)) is None:
        if monotonic() >= deadline:
            raise UsageError(f"another process is at run {run.id}; wait for it, or stop it (Ctrl-C keeps everything)")
        sleep(_PAUSE)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def _taken(path: Path) -> int | None:
    """The open and locked file; None while another process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Not flock: workers that are forked from here and outlive a kill must not go on holding it.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.exists() and path.stat().st_ino == os.fstat(lock).st_ino:
            return lock  # else its holder has taken it away in between: nobody else would meet us there
    except OSError:
        pass
    os.close(lock)
    return None
