"""OpenEvolve drives: its own controller decides parents and prompts, and its database is the population.

Here is only what it begins with; the rest is the proposer's doing (`evolve.proposers.openevolve`).
"""

from random import Random

from kbevolve.archive.records import Operator
from kbevolve.evolve.strategies.base import Choice, NextChild
from kbevolve.evolve.strategies.view import StrategyView


class OpenEvolve:
    """Implements `Strategy`."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """The program it begins with, which is not yet the parent: that one it tells with the child."""
        return Choice(operator=Operator.MUTATE, parents=known.starts[:1], learnt=False) if known.starts else None
