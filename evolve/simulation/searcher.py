"""A searcher: it says which child comes next, observes what became of it, and in the end publishes one program."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kbevolve.evaluators.timing.statistics import half_width
from kbevolve.evolve.simulation.landscape import Landscape, Program, ProgramFailure, ProgramOutcome
from kbevolve.evolve.simulation.simulated_llm import SimulatedLLM, Task


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


class Searcher(Protocol):
    """One search. It sees of the landscape what a run sees of kernels: niches, and what the judge reports."""

    def task(self, spent: int) -> Task:
        """What the simulated LLM writes next; `spent`: evaluations so far."""
        ...

    def observe(self, found: Observation) -> None:
        """Take note of a child, or of a program that the search begins with."""
        ...

    def reserve(self) -> int:
        """Evaluations that are kept for `publish`."""
        ...

    def publish(self) -> tuple[Program, float]:
        """What it would publish now: a program, and the log speedup that it says it has."""
        ...


#: Makes a searcher for one episode.
SearcherFactory = Callable[[Setup], Searcher]
