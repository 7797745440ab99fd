"""Ideas branch into implementations, round by round; the best kernels so far seed the next round.

The scheme by which Stanford's CRFM searched kernels (2025): in each round a model states some ideas in words, each is
carried out several times, since a failed implementation is not a failed idea, and what came out best is where the next
round begins.
"""

from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Backend, Operator
from kbevolve.evolve.strategies.base import Choice, NextChild, StrategyView

#: Kernels that seed a round, in turns: with one alone, a round of its unlucky ideas would be the end of the search.
SEEDS = 2
#: Share of whole rewrites: two implementations of an idea should differ in more than their luck.
REWRITES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Implements `Strategy`. Children of a round: first one of each idea, then the others, idea by idea."""

    #: Ideas of a round, and implementations of each.
    ideas: int
    implementations: int

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """A new idea on a seed of the round, or another implementation of one of its ideas."""
        begin = child.number - child.number % (self.ideas * self.implementations)
        place = (child.number - begin) % self.ideas
        # Every child of a round begins from what its first one knew: the generations that were closed for certain.
        seeds = known.fittest(SEEDS, generation=max(0, begin // child.islands - child.lookahead))
        if not seeds:
            return None
        seed = seeds[place % len(seeds)]
        earlier = [
            attempt
            for number in range(begin + place, child.number, self.ideas)
            for attempt in known.attempts(number // child.islands + 1, number % child.islands)
        ]
        anew = rng.random() < REWRITES or seed.kernel.backend is Backend.TORCH
        return Choice(
            operator=Operator.REWRITE if anew else Operator.MUTATE,
            parents=(seed,),
            idea=next((attempt.idea for attempt in earlier if attempt.idea), None),
            failures=tuple(attempt.failure for attempt in reversed(earlier) if attempt.failure),
        )
