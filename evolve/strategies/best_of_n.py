"""Repeated sampling: every child is written anew from the starting kernel, and nothing is learnt.

Every engine has to beat it at equal budget (arXiv 2602.16805 found several that do not).
"""

from random import Random

from kbevolve.archive.records import Operator
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.strategies.base import Choice, NextChild
from kbevolve.evolve.strategies.view import StrategyView


class BestOfN:
    """Implements `Strategy`. Offline: random values for the tunables of a starting kernel."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """A rewrite of the fittest starting kernel."""
        if not child.offline:
            return Choice(operator=Operator.REWRITE, parents=known.starts[:1], learnt=False) if known.starts else None
        tunable = [start for start in known.starts if declared(start.kernel.source)]
        return Choice(operator=Operator.TUNE, parents=(rng.choice(tunable),), learnt=False) if tunable else None
