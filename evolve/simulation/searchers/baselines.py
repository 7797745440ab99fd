"""The two laws that every other has to beat at the same budget: repeated sampling, and children of the best so far."""

from kbevolve.archive.records import Operator
from kbevolve.evolve.simulation.landscape import Program, SimulatedIdea
from kbevolve.evolve.simulation.searcher import Observation, Publication, Setup
from kbevolve.evolve.simulation.simulated_llm import Task


def favourite(setup: Setup, program: Program, number: int) -> SimulatedIdea:
    """The technique that the llm would take: of several that come to its mind, the earlier the likelier."""
    rng = setup.rng("idea", number)
    ideas = setup.llm.ideas(setup.landscape, program, rng)
    return rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]


class FirstLook:
    """What laws have in common that measure nothing twice: they publish the best score that they happened to see."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._best: Observation | None = None

    def observe(self, found: Observation) -> None:
        """Remember the better one; the earlier one of equals."""
        if found.score is None or found.duplicate:
            return
        if self._best is None or found.score > (self._best.score or 0.0):
            self._best = found

    def reserve(self) -> int:
        """Nothing is kept for another look."""
        return 0

    def publish(self) -> Publication:
        """The best program with the score that it got when it was first seen."""
        assert self._best is not None
        assert self._best.score is not None
        return Publication(program=self._best.program, score=self._best.score)


class BestOfN(FirstLook):
    """Repeated sampling (IID): every child is written from the best program that the search began with."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._start: Observation | None = None
        self._number = 0

    def task(self, spent: int) -> Task:
        """A rewrite of the start."""
        assert self._start is not None
        self._number += 1
        parent = self._start.program
        idea = favourite(self._setup, parent, self._number)
        operator = Operator.REWRITE if self._setup.rng("how", self._number).random() < 0.5 else Operator.MUTATE
        return Task(operator=operator, parents=(parent,), idea=idea)

    def observe(self, found: Observation) -> None:
        """The best of the programs that it begins with stays its parent."""
        super().observe(found)
        if found.task is None:
            self._start = self._best


class Greedy(FirstLook):
    """(1+1): one child of the best so far, which it replaces when it scores better."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._number = 0

    def task(self, spent: int) -> Task:
        """An edit of the best, or a rewrite now and then."""
        assert self._best is not None
        self._number += 1
        parent = self._best.program
        idea = favourite(self._setup, parent, self._number)
        operator = Operator.REWRITE if self._setup.rng("how", self._number).random() < 0.3 else Operator.MUTATE
        return Task(operator=operator, parents=(parent,), idea=idea)
