"""The contracts between the search and every judge of kernels."""

from collections.abc import Sequence
from typing import Protocol

from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.timing.contest import Contest


class Evaluator(Protocol):
    """Decides whether a kernel is correct, and how much faster than the eager reference it is.

    An implementation never raises for a bad kernel: a kernel that does not compile, crashes, hangs, cheats or computes
    wrong results is an `Evaluation` with that verdict and a message fit for a prompt. `EvaluatorError` means an
    infrastructure failure (no device, the reference itself fails), and the search stops.
    """

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel; blocks until the verdict is known."""
        ...


class Checker(Protocol):
    """Decides whether a kernel is correct, and measures no time."""

    def check(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel; blocks until the verdict is known. Raises as `Evaluator.evaluate` does.

        `EvaluatorError` also means that the judge cannot judge any kernel of this problem.
        """
        ...


class Confirmer(Protocol):
    """Measures kernels again, against each other: fresh processes for all of them, fresh inputs, paired rounds.

    It uses no earlier measurement, so its numbers are free of the luck that made a kernel the best of many.
    """

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Judge and time the kernels and the reference in the same rounds; blocks until all are measured.

        Like `Evaluator.evaluate`, it never raises for a bad kernel, which is in `Contest.failed`.
        """
        ...
