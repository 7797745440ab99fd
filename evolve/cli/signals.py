"""SIGTERM as Ctrl-C, and the end of what is under way then."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Exit code of what the user interrupted, as shells have it: 128 + SIGINT.
INTERRUPTED = 130


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a process that is told to go leaves in order: batch systems send it first."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
