"""Children that were tried, and how they failed: what later prompts learn from, and what new kernels must not repeat.

A kernel whose canonical form the run has (`islands.source.canonical`) runs as that one does, and is its duplicate.
A near-duplicate of a kernel that failed, or was much slower than its parent, may still be right: the model is shown the
failure and asked once more, and its second answer is judged in any case.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Kernel, Operator, Verdict
from kbevolve.archive.run_view import RunView
from kbevolve.islands.source.similarity import resemblance, shingles

#: Share of its text that a near-duplicate has in common with a known failure.
ALIKE = 0.95
#: A kernel that reaches at most this share of its parent's speed is clearly slower, beyond what the
#: intervals of both allow.
SLOWER = 0.7
#: Known failures that children are compared with, the newest: a comparison with all takes some milliseconds.
REMEMBERED = 64
#: Operators whose children are compared. A repair has to resemble the kernel that it repairs.
COMPARED = frozenset({Operator.MUTATE, Operator.REWRITE, Operator.CROSS})

_FARED = {
    Verdict.REFUSED: "was refused",
    Verdict.BUILD_FAILED: "did not compile",
    Verdict.CRASHED: "crashed",
    Verdict.TIMED_OUT: "took too long",
    Verdict.WRONG: "was wrong",
    Verdict.CORRECT: "was much slower than its parent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """A kernel that a child nearly equals, and how it fared."""

    #: Kernel id.
    kernel: str
    #: Share of the text that both have in common, 0 to 1.
    share: float
    evaluation: Evaluation

    @property
    def fared(self) -> str:
        """How the other fared: ``was wrong``, ``crashed``, ``was much slower than its parent``."""
        return _FARED[self.evaluation.verdict]

    @property
    def words(self) -> str:
        """``shares 97 % of its text with 3f2a9c…, which was wrong``."""
        return f"shares {100 * self.share:.0f} % of its text with {self.kernel}, which {self.fared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A child that did not work, for the prompt of the next."""

    kernel: Kernel
    #: What the judge found; of a child that was not judged (`like`), what it found about the other.
    evaluation: Evaluation
    #: The idea it tried, None when it followed none.
    idea: Idea | None = None
    #: The kernel that it nearly equals, so that it was not judged; None for one that was judged.
    like: Likeness | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A birth that is through, and what came of it."""

    birth: Birth
    #: None when no kernel came of it.
    kernel: Kernel | None = None
    #: None likewise.
    evaluation: Evaluation | None = None
    #: The idea it carried out, None when it followed none.
    idea: Idea | None = None

    @property
    def failure(self) -> Failure | None:
        """For the prompt of the next; None when it works or was not judged."""
        if self.kernel is None or self.evaluation is None or self.evaluation.verdict is Verdict.CORRECT:
            return None
        return Failure(kernel=self.kernel, evaluation=self.evaluation, idea=self.idea)


def teaches(birth: Birth) -> bool:
    """Whether an attempt says anything about ideas and operators: starting kernels do not, nor what came of nothing."""
    return birth.operator is not Operator.SEED and bool(birth.parents or birth.kernel)


def first_correct(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """Of a child's parents that with which it is compared: the main parent of a repair is the failed child."""
    return next((one for one in evaluations if one.verdict is Verdict.CORRECT), None)


def known_failures(
    before: tuple[str, ...], birth: Birth, evaluation: Evaluation, parent: Evaluation | None
) -> tuple[str, ...]:
    """The newest kernels of a run that failed, or are much slower than their parent: their ids, the oldest first.

    Args:
        before: those of the births before.
        birth: the next one.
        evaluation: of its kernel.
        parent: of its first correct parent, None when it has none.
    """
    if birth.kernel is None or birth.state is not BirthState.CREATED or not _is_failure(evaluation, parent):
        return before
    return (*(one for one in before if one != birth.kernel), birth.kernel)[-REMEMBERED:]


class NearDuplicates:
    """Finds the known failure that a new kernel nearly repeats.

    Args:
        view: what the archive holds of the run.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._shingles = lru_cache(maxsize=2 * REMEMBERED)(lambda kernel: shingles(view.kernel(kernel).source))

    def likeness(self, kernel: Kernel, parents: Sequence[str], failures: Sequence[str]) -> Likeness | None:
        """The failure that a child resembles too much; None when there is none.

        All children of small edits resemble their parent: only a child nearer to a failure than to each of its parents
        repeats it.
        """
        if not failures:
            return None
        own = shingles(kernel.source)
        shares = {one: resemblance(own, self._shingles(one)) for one in failures}
        nearest = max(failures, key=lambda one: shares[one])
        if shares[nearest] < ALIKE:
            return None
        if any(resemblance(own, self._shingles(parent)) >= shares[nearest] for parent in parents):
            return None
        evaluation = self._view.evaluation(nearest)
        assert evaluation is not None, "a known failure was judged"
        return Likeness(kernel=nearest, share=shares[nearest], evaluation=evaluation)


def _is_failure(evaluation: Evaluation, parent: Evaluation | None) -> bool:
    if evaluation.verdict is not Verdict.CORRECT:
        return True
    if parent is None or parent.timing.speedup_low is None or evaluation.timing.speedup_high is None:
        return False
    return evaluation.timing.speedup_high < SLOWER * parent.timing.speedup_low
