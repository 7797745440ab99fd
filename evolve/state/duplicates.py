"""What may not be worth a place in the judge's queue: a kernel that is nearly one that failed.

A kernel of a form that the run has (`islands.source.canonical`) runs as that one does, and is its duplicate.
One that merely shares almost all of its text with a known failure, or with a kernel much slower than its parent, may
still be right: its author is told so and asked once more, and what comes then is judged whatever it is.
"""

from collections.abc import Sequence
from functools import lru_cache

from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Verdict
from kbevolve.archive.run_view import Ledger
from kbevolve.evolve.state.attempts import Likeness
from kbevolve.islands.source.similarity import Shingles, resemblance, shingles

#: Share of its text that a child must have in common with a kernel to be asked for again (SEARCH section 8).
ALIKE = 0.95
#: A kernel that reaches at most this share of its parent's speed is clearly slower (SEARCH section 5), beyond what the
#: intervals of both allow.
SLOWER = 0.7
#: Kernels that children are compared with, the newest: comparing with them takes some milliseconds.
REMEMBERED = 64
#: Operators whose children are compared. A repair has to resemble what it mends.
COMPARED = frozenset({Operator.MUTATE, Operator.REWRITE, Operator.CROSS})


class Blunders:
    """The newest kernels of a run that failed, or came out much slower than what they were made from."""

    def __init__(self) -> None:
        self._kernels: dict[str, None] = {}

    def observe(self, birth: Birth, evaluation: Evaluation, parent: Evaluation | None) -> None:
        """Take note of a birth.

        Args:
            birth: which.
            evaluation: of its kernel.
            parent: of its first correct parent, None when it has none.
        """
        if birth.kernel is None or birth.state is not BirthState.CREATED or not _is_blunder(evaluation, parent):
            return
        self._kernels.pop(birth.kernel, None)
        self._kernels[birth.kernel] = None
        if len(self._kernels) > REMEMBERED:
            del self._kernels[next(iter(self._kernels))]

    def snapshot(self) -> tuple[str, ...]:
        """Their ids, the oldest first; what a child is compared with later."""
        return tuple(self._kernels)


class Novelty:
    """Tells whether a kernel that was just written is worth judging.

    Args:
        ledger: what the archive holds of the run.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shingles = lru_cache(maxsize=2 * REMEMBERED)(self._read_shingles)

    def likeness(self, kernel: Kernel, parents: Sequence[str], blunders: Sequence[str]) -> Likeness | None:
        """The blunder that a child resembles too much; None when there is none.

        A child of small edits resembles its parent, and so does each of its siblings: only one that is nearer to a
        blunder than to any of its parents repeats it.
        """
        if not blunders:
            return None
        own = shingles(kernel.source)
        shares = {one: resemblance(own, self._shingles(one)) for one in blunders}
        nearest = max(blunders, key=lambda one: shares[one])
        if shares[nearest] < ALIKE:
            return None
        if any(resemblance(own, self._shingles(parent)) >= shares[nearest] for parent in parents):
            return None
        evaluation = self._ledger.evaluation(nearest)
        assert evaluation is not None, "a blunder was judged"
        return Likeness(kernel=nearest, share=shares[nearest], evaluation=evaluation)

    def _read_shingles(self, kernel_id: str) -> Shingles:
        return shingles(self._ledger.kernel(kernel_id).source)


def _is_blunder(evaluation: Evaluation, parent: Evaluation | None) -> bool:
    if evaluation.verdict is not Verdict.CORRECT:
        return True
    if parent is None or parent.timing.speedup_low is None or evaluation.timing.speedup_high is None:
        return False
    return evaluation.timing.speedup_high < SLOWER * parent.timing.speedup_low
