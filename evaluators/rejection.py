"""How a step of the judge's work ends early: the kernel's verdict is known."""

from kbevolve.archive.records import Verdict


class Rejection(Exception):
    """A kernel failed. Raised and caught inside this folder only: outside it a bad kernel is an `Evaluation`."""

    def __init__(self, verdict: Verdict, message: str, *, tags: tuple[str, ...] = (), culprit: str = "") -> None:
        """`tags`: for the evaluation; `culprit`: which kernel it was, where several are timed together."""
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.tags = tags
        self.culprit = culprit
