"""The strategies of a few lines: repeated sampling, (1+1), and the one that leaves everything to OpenEvolve."""

from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Backend, Operator
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.strategies.base import Choice, NextChild, StrategyView

#: Share of whole rewrites among the children that a model writes, as of the greedy searcher of `evolve.simulation`.
REWRITES = 0.3


class BestOfN:
    """Repeated sampling: every child is written anew from the starting kernel, and nothing is learnt.

    Every engine has to beat it at equal budget (arXiv 2602.16805 found several that do not).
    Offline: random values for the tunables of a starting kernel.
    """

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """A rewrite of the fittest starting kernel."""
        if not child.offline:
            return Choice(operator=Operator.REWRITE, parents=known.starts[:1], learnt=False) if known.starts else None
        tunable = [start for start in known.starts if declared(start.kernel.source)]
        return Choice(operator=Operator.TUNE, parents=(rng.choice(tunable),), learnt=False) if tunable else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """(1+1): one child at a time, of the best kernel so far, which it replaces when it has shown to be faster."""

    #: Share of children by other values of tunables, in a run with a model; offline all of them are.
    tune_share: float

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """An edit or a rewrite of the best, or other values for its tunables."""
        ranked = known.ranked()
        tuned = child.offline or (Operator.TUNE in child.operators and rng.random() < self.tune_share)
        if child.offline:
            ranked = tuple(member for member in ranked if declared(member.kernel.source))
        if not ranked:
            return None
        best = ranked[0]
        if tuned and declared(best.kernel.source):
            return Choice(operator=Operator.TUNE, parents=(best,))
        # A kernel that computes nothing by itself offers nothing to edit.
        anew = rng.random() < REWRITES or best.kernel.backend is Backend.TORCH
        return Choice(operator=Operator.REWRITE if anew else Operator.MUTATE, parents=(best,))


class OpenEvolve:
    """OpenEvolve's own controller decides parents and prompts (`evolve.proposers.openevolve`)."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """The program it begins with. The proposer reports the real parent with the child."""
        return Choice(operator=Operator.MUTATE, parents=known.starts[:1], learnt=False) if known.starts else None
