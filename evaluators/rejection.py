"""The exception that ends the evaluation of a kernel early with its verdict."""

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
