"""The seam between the loop and a strategy: which child is asked for, and what a strategy decides of it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kbevolve.archive.records import Idea, Operator
from kbevolve.configs.settings import Feedback, SearchSettings
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.view import Knowledge
from kbevolve.islands.island import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Which child is asked for."""

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
        """Children of the run before this one, as if they were bred one by one."""
        return (self.generation - 1) * self.islands + self.island

    def generation_of(self, number: int) -> int:
        """The generation that bears the child of a number."""
        return number // self.islands + 1

    def island_of(self, number: int) -> int:
        """The island that bears the child of a number."""
        return number % self.islands

    def closed_before(self, generation: int) -> int:
        """The newest generation that was closed for certain when a generation was bred."""
        return max(0, generation - 1 - self.lookahead)

    @property
    def offline(self) -> bool:
        """Whether nobody writes kernels."""
        return Operator.MUTATE not in self.operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a strategy decides of a child. What it leaves out is not told to whoever makes the child."""

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
    #: Whether ideas that were tried in this run are told with what came of them, and numbers of its kernels.
    learnt: bool = True
    #: What may be told of kernels beside their source.
    told: frozenset[Feedback] = frozenset({"execution", "profiler"})


class Strategy(Protocol):
    """How children come about. Pure: the same knowledge and the same numbers give the same choice."""

    def choose(self, known: Knowledge, turn: Turn, rng: Random) -> Choice | None:
        """What the next child is made from and by which operator; None when there is nothing to make it from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A strategy by name."""

    #: What it does, in a line.
    words: str
    #: Makes it; None for the loop's own breeding (`evolve.strategies.evolve`).
    make: Callable[[SearchSettings], Strategy] | None
    #: Whether each child has to wait for the one before: then there is one island, and no generations overlap.
    serial: bool = False
    #: Whether a failed child is mended by repair turns, as in the default strategy; some mend in ways of their own.
    repairs: bool = True
    #: Why it needs a model that writes kernels; "" when it can do without.
    needs_model: str = ""


class Breeder(Protocol):
    """Makes the brief of an island's next child: the default strategy's breeding, or another strategy's."""

    def brief(
        self, population: Population, *, generation: int, island: int, known: Callable[[str], bool]
    ) -> Brief | None:
        """The brief; None when there is nothing to make a child from."""
        ...
