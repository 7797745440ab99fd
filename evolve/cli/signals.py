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


def end_requests(one: object) -> None:
    """End the requests that a proposer or a language model has under way, if it is one that has such.

    So an interrupted run does not wait for answers that nobody will read.
    """
    close = getattr(one, "close", None)
    if close is not None:
        close()
