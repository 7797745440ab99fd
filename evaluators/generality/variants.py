"""A problem changed in one respect, and a kernel judged on the changes one after another, without timing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.evaluator import Checker


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A problem with other sizes, or with other inputs."""

    #: Why it was chosen: "own sizes", "odd", "given", the name of an OpInfo, …
    kind: str
    #: What differs, for people: "N=513, M=64".
    words: str
    problem: Problem
    #: Values of the problem's module constants.
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantVerdict:
    """What the judge found out about a kernel on one variant."""

    variant: Variant
    #: None where the judge cannot judge any kernel there.
    evaluation: Evaluation | None
    #: Why not, one line.
    why: str = ""

    @property
    def is_correct(self) -> bool:
        """Whether the kernel is right there."""
        return self.evaluation is not None and self.evaluation.verdict is Verdict.CORRECT

    @property
    def message(self) -> str:
        """Why the kernel is not right there, or why nothing was judged."""
        return self.why if self.evaluation is None else self.evaluation.message


def judge_variants(
    checker: Checker, kernel: Kernel, variants: Iterable[Variant], report: Callable[[VariantVerdict], None]
) -> list[VariantVerdict]:
    """The verdict on each variant; `report` takes each as soon as it is known.

    A variant on which the reference itself fails counts neither for nor against the kernel.
    """
    found = []
    for variant in variants:
        try:
            verdict = VariantVerdict(variant=variant, evaluation=checker.check(variant.problem, kernel))
        except EvaluatorError as error:
            verdict = VariantVerdict(variant=variant, evaluation=None, why=str(error))
        found.append(verdict)
        report(verdict)
    return found


def correct_and_judged(verdicts: Sequence[VariantVerdict]) -> tuple[int, int]:
    """How many variants the kernel is right on, and how many were judged."""
    return sum(one.is_correct for one in verdicts), sum(one.evaluation is not None for one in verdicts)
