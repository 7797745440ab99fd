"""The seam between the search and a strategy: which child follows, and what a strategy decides about it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Protocol

from kbevolve.archive.records import Idea, Operator, Verdict
from kbevolve.archive.run_view import RunView
from kbevolve.configs.settings import Feedback, SearchSettings
from kbevolve.evolve.state.attempts import Attempt, Failure
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Member, ranked

#: Generations that are looked through for an island's newest attempt: after so many answers without code it is better
#: to begin anew than to ask the same again.
LOOK_BACK = 16
#: `search.lookahead` by default where only tunables change: while one child is timed, others are built and tried.
TUNED_LOOKAHEAD = 4


@dataclass(frozen=True, kw_only=True)
class StrategyView:
    """What one run knows, as one island sees it: what a strategy may look at when it chooses a child.

    Everything rests on first evaluations of generations that were closed by then. So a resumed run decides as the
    undisturbed one did, whatever was measured again later.
    """

    #: The kernels on its islands, and what the archive holds of it.
    population: Population
    run: RunView
    #: The island of the child, and the newest generation that is closed.
    island: int
    closed: int

    @cached_property
    def starts(self) -> tuple[Member, ...]:
        """The starting kernels that are correct, the fittest first."""
        found = {
            evaluation.kernel
            for _, evaluation in self.run.verdicts(0)
            if evaluation is not None and evaluation.verdict is Verdict.CORRECT
        }
        return ranked(self.population.member(kernel) for kernel in found)

    def ranked(self) -> tuple[Member, ...]:
        """The fittest kernels of the run, the best first."""
        every = {member.kernel.id: member for island in self.population.islands for member in island.members}
        return ranked(every.values())

    def fittest(self, count: int, *, generation: int) -> tuple[Member, ...]:
        """The fittest kernels up to and with a generation, the best first."""
        found = self.run.contenders(generation=generation, above=0.0, count=count)
        return tuple(map(self.population.member, found))

    def last(self) -> Attempt | None:
        """This island's newest attempt that was judged, right or wrong; None before its first child."""
        for generation in range(self.closed, max(0, self.closed - LOOK_BACK), -1):
            for attempt in reversed(self.attempts(generation)):
                if attempt.evaluation is not None:
                    return attempt
        return None

    def attempts(self, generation: int, island: int | None = None) -> tuple[Attempt, ...]:
        """What an island (this one) created in a generation, a child before its repairs; () while it is not closed.

        Without prompts and replies.
        """
        if generation > self.closed:
            return ()
        wanted = self.island if island is None else island
        return tuple(
            Attempt(
                birth=birth,
                kernel=self.run.kernel(birth.kernel) if birth.kernel else None,
                evaluation=evaluation,
                idea=self.run.idea(birth.idea) if birth.idea else None,
            )
            for birth, evaluation in self.run.verdicts(generation)
            if birth.island == wanted
        )

    def since(self, generation: int) -> list[Attempt]:
        """What this island created from a generation on, the oldest first, with prompts and replies."""
        found = []
        for attempt in (one for closed in range(generation, self.closed + 1) for one in self.attempts(closed)):
            prompt, reply = self.run.conversation(attempt.birth)
            found.append(replace(attempt, birth=replace(attempt.birth, prompt=prompt, reply=reply)))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NextChild:
    """Which child a strategy chooses for."""

    #: From 1 on.
    generation: int
    island: int
    islands: int
    #: Operators that have a proposer.
    operators: frozenset[Operator]
    #: Generations that overlap with this one (`lookahead_of`).
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
    #: Kernels to learn from, the first one most: a champion of another island, elites of other niches.
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


def lookahead_of(settings: SearchSettings, operators: Collection[Operator]) -> int:
    """How many generations a run may begin before the oldest has closed (`search.lookahead`).

    Children that someone writes are made from all that is known: each costs a call, and those that are made from older
    results need more calls to the same speed, whether the author is slower than the judge or faster
    (docs/results/2026-11-23-lookahead.md). Other tunables cost nothing, so that devices should never wait for them.
    """
    if settings.lookahead == "auto":
        return 0 if Operator.MUTATE in operators else TUNED_LOOKAHEAD
    return settings.lookahead


class Strategy(Protocol):
    """Chooses children. Pure: the same view and the same numbers give the same choice."""

    def choose(self, known: StrategyView, child: NextChild, rng: Random) -> Choice | None:
        """What the next child is made from and by which operator; None when there is nothing to make it from."""


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
