"""The exception that ends the evaluation of a kernel early with its verdict."""

from collections.abc import Iterator
from contextlib import contextmanager

from kbevolve.archive.records import Verdict


class Rejection(Exception):
    """A kernel failed. Raised and caught inside evaluators/ only: elsewhere a bad kernel is an `Evaluation`."""

    def __init__(self, verdict: Verdict, message: str, *, tags: tuple[str, ...] = (), culprit: str = "") -> None:
        """`tags`: of the evaluation; `culprit`: which kernel failed, where several are timed together."""
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.tags = tags
        self.culprit = culprit


@contextmanager
def reading_a_reply(*expected: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong while a reply is read, but `expected`, is the fault of the process that wrote it."""
    try:
        yield
    except Rejection:
        raise
    except expected:
        raise
    except Exception:
        raise Rejection(Verdict.CRASHED, "its process sent a reply that cannot be read") from None
