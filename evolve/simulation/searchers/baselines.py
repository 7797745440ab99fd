"""The two searchers that every other has to beat at the same budget: repeated sampling, and children of the best."""

from kbevolve.archive.records import Idea, Operator
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.searcher import Observation, Setup
from kbevolve.evolve.simulation.simulated_llm import Task


def favourite(setup: Setup, program: Program, number: int) -> Idea:
    """The technique that the simulated LLM would take: of several, the earlier the likelier."""
    rng = setup.rng("idea", number)
    ideas = setup.llm.ideas(setup.landscape, program, rng)
    return rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]


class FirstLook:
    """Common to searchers that measure nothing twice: they publish the best score that they happened to see."""

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

    def publish(self) -> tuple[Program, float]:
        """The best program with the score of its only evaluation."""
        assert self._best is not None
        assert self._best.score is not None
        return self._best.program, self._best.score


class _OneParent(FirstLook):
    """Every child is written from one program; a share of them anew, the others by an edit."""

    _REWRITES: float

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._parent: Observation | None = None
        self._number = 0

    def task(self, spent: int) -> Task:
        """An edit or a rewrite of the parent."""
        assert self._parent is not None
        self._number += 1
        parent = self._parent.program
        idea = favourite(self._setup, parent, self._number)
        anew = self._setup.rng("how", self._number).random() < self._REWRITES
        return Task(operator=Operator.REWRITE if anew else Operator.MUTATE, parents=(parent,), idea=idea)


class BestOfNSearcher(_OneParent):
    """Repeated sampling (IID): the parent is always the best program that the search began with."""

    _REWRITES = 0.5

    def observe(self, found: Observation) -> None:
        """See `Searcher`."""
        super().observe(found)
        if found.task is None:
            self._parent = self._best


class GreedySearcher(_OneParent):
    """(1+1): the parent is the best so far."""

    _REWRITES = 0.3

    def observe(self, found: Observation) -> None:
        """See `Searcher`."""
        super().observe(found)
        self._parent = self._best
