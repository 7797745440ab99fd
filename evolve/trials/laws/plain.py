"""The two laws that every other has to beat at the same budget: repeated sampling, and children of the best so far."""

from kbevolve.archive.records import Operator
from kbevolve.evolve.trials.landscape import Idea, Program
from kbevolve.evolve.trials.law import Claim, Found, Setting
from kbevolve.evolve.trials.operator import Task


def favourite(setting: Setting, program: Program, number: int) -> Idea:
    """The technique that the author would take: of several that come to its mind, the earlier the likelier."""
    rng = setting.rng("idea", number)
    ideas = setting.author.ideas(setting.landscape, program, rng)
    return rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]


class BestOfN:
    """Repeated sampling (IID): every child is written from the best program that the search began with."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._start: Found | None = None
        self._best: Found | None = None
        self._number = 0

    def task(self, spent: int) -> Task:
        """A rewrite of the start."""
        assert self._start is not None
        self._number += 1
        parent = self._start.program
        idea = favourite(self._setting, parent, self._number)
        operator = Operator.REWRITE if self._setting.rng("how", self._number).random() < 0.5 else Operator.MUTATE
        return Task(operator=operator, parents=(parent,), idea=idea)

    def note(self, found: Found) -> None:
        """Only the best is remembered, by the score that it happened to get."""
        if found.score is None or found.duplicate:
            return
        if found.task is None:
            self._start = better(self._start, found)
        self._best = better(self._best, found)

    def reserve(self) -> int:
        """Nothing is measured twice."""
        return 0

    def claim(self) -> Claim:
        """The best score."""
        return claim_of(self._best)


class Greedy:
    """(1+1): one child of the best so far, which it replaces when it scores better."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._best: Found | None = None
        self._number = 0

    def task(self, spent: int) -> Task:
        """An edit of the best, or a rewrite now and then."""
        assert self._best is not None
        self._number += 1
        parent = self._best.program
        idea = favourite(self._setting, parent, self._number)
        operator = Operator.REWRITE if self._setting.rng("how", self._number).random() < 0.3 else Operator.MUTATE
        return Task(operator=operator, parents=(parent,), idea=idea)

    def note(self, found: Found) -> None:
        """The better one stays."""
        if found.score is not None and not found.duplicate:
            self._best = better(self._best, found)

    def reserve(self) -> int:
        """Nothing is measured twice."""
        return 0

    def claim(self) -> Claim:
        """The best score."""
        return claim_of(self._best)


def better(one: Found | None, other: Found) -> Found:
    """The one with the larger score; the earlier one of equals."""
    return other if one is None or (other.score or 0.0) > (one.score or 0.0) else one


def claim_of(best: Found | None) -> Claim:
    """A program with the score that it got when it was first seen."""
    assert best is not None
    assert best.score is not None
    return Claim(program=best.program, score=best.score)
