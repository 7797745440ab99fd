"""The contract between the search and whatever judges kernels."""

from typing import Protocol

from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.problem import Problem


class Evaluator(Protocol):
    """Decides whether a kernel is correct and how much faster than the eager reference it is.

    An implementation never raises for a bad kernel: a kernel that does not compile, crashes, hangs, lies or
    answers wrongly is an `Evaluation` with that verdict and a message fit for a prompt. `EvaluatorError` means
    that the rig is broken (no device, the reference itself fails), and the search stops.
    """

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel; blocks until the verdict stands."""
        ...
