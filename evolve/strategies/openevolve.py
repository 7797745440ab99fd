"""OpenEvolve: its own controller decides parents and prompts, and its database is the population.

This file chooses only the program that it begins with; the proposer does the rest (`evolve.proposers.openevolve`).
"""

from random import Random

from kbevolve.archive.records import Operator
from kbevolve.evolve.strategies.base import Choice, NextChild
from kbevolve.evolve.strategies.view import StrategyView


class OpenEvolve:
    """Implements `Strategy`."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """The program it begins with. The proposer reports the real parent with the child."""
        return Choice(operator=Operator.MUTATE, parents=known.starts[:1], learnt=False) if known.starts else None
