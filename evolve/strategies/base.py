"""The seam between the search and a strategy: which child comes next, and what a strategy decides about it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kbevolve.archive.records import Idea, Operator
from kbevolve.configs.settings import Feedback, SearchSettings
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.strategies.view import StrategyView
from kbevolve.islands.island import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class NextChild:
    """Which child a strategy chooses for."""

    #: From 1 on.
    generation: int
    island: int
    islands: int
    #: Operators that have a proposer.
    operators: frozenset[Operator]
    #: Generations that overlap with this one (`search.lookahead`).
    lookahead: int = 0

    @property
    def number(self) -> int:
        """Children of the run before this one, as if they were created one by one."""
        return (self.generation - 1) * self.islands + self.island

    @property
    def offline(self) -> bool:
        """Whether no model writes kernels."""
        return Operator.MUTATE not in self.operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a strategy decides about a child. The proposer sees nothing that the strategy leaves out."""

    operator: Operator
    #: Main parent first. For REPAIR the failed child's own parents.
    parents: tuple[Member, ...]
    #: Elites of other niches, to learn from.
    inspirations: tuple[Member, ...] = ()
    #: The child to repair; None unless the operator is REPAIR.
    repair: Failure | None = None
    #: The idea to carry out; None leaves it to the proposer.
    idea: Idea | None = None
    #: Failures to learn from, the newest first.
    failures: tuple[Failure, ...] = ()
    #: Whether the proposer sees which ideas were tried in this run with what came of them, and the run's best kernels.
    learnt: bool = True
    #: What the proposer may see of kernels beside their source.
    feedback: frozenset[Feedback] = frozenset({"execution", "profiler"})


class Strategy(Protocol):
    """Chooses children. Pure: the same view and the same numbers give the same choice."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """What the next child is made from and by which operator; None when there is nothing to make it from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyKind:
    """A strategy by name."""

    #: What it does, in a line.
    words: str
    #: Makes it; None for the default strategy (`evolve.strategies.evolve`).
    make: Callable[[SearchSettings], Strategy] | None
    #: Whether each child has to wait for the one before: then there is one island, and no generations overlap.
    serial: bool = False
    #: Whether a failed child gets repair turns, as in the default strategy; some repair in ways of their own.
    repairs: bool = True
    #: Why it needs a model that writes kernels; "" when it can do without.
    needs_model: str = ""
