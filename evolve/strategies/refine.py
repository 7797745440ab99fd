"""Iterative refinement: each child is made from the last one, right or wrong, by what was measured of it.

KernelBench's authors had models improve their own kernels in this way, with three switches: whether a model sees the
last generation itself, the result of its execution, and the profile.
"""

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from kbevolve.archive.records import Operator
from kbevolve.configs.settings import Feedback
from kbevolve.evolve.strategies.base import Choice, NextChild, StrategyView
from kbevolve.islands.island import Member
from kbevolve.islands.niches import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Refine:
    """Implements `Strategy`. It repairs a failed child by itself, so there are no repair turns."""

    #: What is fed back of the last child.
    feedback: Collection[Feedback]

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """The last child to edit or to repair; before the first, and without its source, the best start to rewrite."""
        if not known.starts:
            return None
        last = known.last()
        failure = last.failure if last and "execution" in self.feedback else None
        if last is None or last.kernel is None or last.evaluation is None or "generation" not in self.feedback:
            return self._choice(Operator.REWRITE, known.starts[:1], failures=(failure,) if failure else ())
        if failure:
            ancestors = tuple(member for member in known.ranked() if member.kernel.id in last.birth.parents)
            return self._choice(Operator.REPAIR, ancestors, repair=failure)
        # A run that hides results of execution goes on from wrong kernels, too.
        niche = describe(last.kernel, last.evaluation.compiled.traits)
        member = Member(kernel=last.kernel, evaluation=last.evaluation, niche=niche)
        return self._choice(Operator.MUTATE, (member,))

    def _choice(self, operator: Operator, parents: tuple[Member, ...], **more: Any) -> Choice:
        return Choice(operator=operator, parents=parents, learnt=False, feedback=frozenset(self.feedback), **more)
