"""A searcher says which child follows, observes what became of it, and in the end publishes one program.

An episode is one search on a landscape, under the same conditions for all searchers. A draft that was judged before
costs nothing the second time, and a child that fails in a repairable way gets one repair turn, which is an evaluation
of its own. Both are worth as much as the choice of parents (docs/landscapes.md), so every searcher has them.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from kbevolve.evaluators.timing.statistics import half_width
from kbevolve.evolve.simulation.landscape import Landscape, Program, ProgramFailure, ProgramOutcome
from kbevolve.evolve.simulation.simulated_llm import Draft, SimulatedLLM, Task, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One evaluation, or a child that was known and cost none."""

    #: What it was made from; None for the programs that every search begins with.
    task: Task | None
    program: Program
    #: Mean log speedup over the reference as it was measured; None for a failure.
    score: float | None = None
    #: Half of the 95 % interval of the score.
    margin: float = 0.0
    failure: ProgramFailure | None = None
    #: Whether the draft was known already; then the rest is what was measured the first time.
    duplicate: bool = False

    @property
    def low(self) -> float:
        """Lower end of the interval: what the program has at least shown."""
        return -math.inf if self.score is None else self.score - self.margin

    @classmethod
    def of(cls, program: Program, outcome: ProgramOutcome, task: Task | None = None) -> "Observation":
        """An evaluation as searchers see it."""
        if isinstance(outcome, ProgramFailure):
            return cls(task=task, program=program, failure=outcome)
        gains = [-value for value in outcome]
        margin = half_width(gains) if len(gains) > 1 else 0.0
        return cls(task=task, program=program, score=statistics.fmean(gains), margin=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a searcher may know before it begins."""

    landscape: Landscape
    llm: SimulatedLLM
    #: Evaluations in all, the starting programs' among them.
    budget: int
    #: Measures a program once more, for one evaluation; None when the budget is spent.
    again: Callable[[Program], Observation | None]
    #: Names its random choices.
    seed: int

    def rng(self, *purpose: object) -> Random:
        """A generator of its own for every decision, so that none moves another's numbers."""
        return Random("/".join(map(str, (self.seed, *purpose))))


#: Known drafts in a row after which a search is over.
_EXHAUSTED = 200


class Searcher(Protocol):
    """One search. It sees of the landscape what a run sees of kernels: niches, and what the judge reports."""

    def task(self, spent: int) -> Task:
        """What the simulated LLM writes next; `spent`: evaluations so far."""

    def observe(self, found: Observation) -> None:
        """Take note of a child, or of a program that the search begins with."""

    def reserve(self) -> int:
        """Evaluations that are kept for `publish`."""

    def publish(self) -> tuple[Program, float]:
        """What it would publish now: a program, and the log speedup that it says it has."""


#: Makes a searcher for one episode.
SearcherFactory = Callable[[Setup], Searcher]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """What an episode delivered."""

    #: Log speedup that the searcher publishes, the true one of that program, and the largest of the landscape.
    claimed: float
    delivered: float
    optimum: float
    #: Evaluations, drafts that were known, and valid ones among the evaluations.
    spent: int
    duplicates: int
    valid: int


def run_episode(
    landscape: Landscape, searcher: SearcherFactory, *, llm: SimulatedLLM, budget: int, seed: int
) -> EpisodeResult:
    """Search until the budget is spent.

    Args:
        landscape: where.
        searcher: makes the searcher.
        llm: writes the children.
        budget: evaluations, those of the starting programs and of the searcher's last look among them.
        seed: names all random choices; episodes of different searchers with one seed are pairs.
    """
    return _Episode(landscape, searcher, llm, budget, seed).run()


class _Episode:
    def __init__(
        self, landscape: Landscape, searcher: SearcherFactory, llm: SimulatedLLM, budget: int, seed: int
    ) -> None:
        self._landscape, self._llm, self._budget = landscape, llm, budget
        self._writing, self._noise = Random(f"{seed}/writing"), Random(f"{seed}/noise")
        self._known: dict[Draft, Observation] = {}
        self._spent = self._duplicates = self._valid = 0
        self._searcher = searcher(Setup(landscape=landscape, llm=llm, budget=budget, again=self._again, seed=seed))

    def run(self) -> EpisodeResult:
        for program in self._landscape.start():
            self._searcher.observe(self._evaluate(Draft(program=program), None))
        in_a_row = 0
        while self._spent < self._budget - self._searcher.reserve() and in_a_row < _EXHAUSTED:
            task = self._searcher.task(self._spent)
            draft = self._llm.write(self._landscape, task, self._writing)
            in_a_row = in_a_row + 1 if draft in self._known else 0
            self._child(draft, task)
        program, claimed = self._searcher.publish()
        true = self._landscape.true_value(program)
        assert true is not None, "a searcher publishes what the judge accepted"
        return EpisodeResult(
            claimed=claimed,
            delivered=true,
            optimum=self._landscape.optimum,
            spent=self._spent,
            duplicates=self._duplicates,
            valid=self._valid,
        )

    def _child(self, draft: Draft, task: Task) -> None:
        """Show the searcher what became of a child and, when it fails and a repair changes it, of the repair."""
        new = draft not in self._known
        found = self._evaluate(draft, task)
        self._searcher.observe(found)
        if new and found.failure is not None and self._spent < self._budget - self._searcher.reserve():
            repaired = self._llm.repair(self._landscape, draft, found.failure, self._writing)
            if repaired != draft:
                self._searcher.observe(self._evaluate(repaired, task))

    def _evaluate(self, draft: Draft, task: Task | None) -> Observation:
        if draft in self._known:
            self._duplicates += 1
            return replace(self._known[draft], task=task, duplicate=True)
        self._spent += 1
        found = Observation.of(draft.program, judge(self._landscape, draft, self._noise), task)
        self._valid += found.failure is None
        self._known[draft] = found
        return found

    def _again(self, program: Program) -> Observation | None:
        if self._spent >= self._budget:
            return None
        self._spent += 1
        return Observation.of(program, self._landscape.measure(program, self._noise))
