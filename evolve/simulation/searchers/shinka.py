"""ShinkaEvolve's sampling, as its repository defines it (``shinka/database``: parents.py, dbase.DatabaseConfig).

Two islands, each with a copy of the first program; each child is of an island drawn at random. A parent is drawn among
the programs of the island in an archive of the forty fittest, with weight sigmoid(10 (score - median) / MAD) / (1 +
children). No migration by default. One program of the archive and one of the best are shown. Three kinds of change,
weighted by its defaults (``shinka/defaults.py``): an edit 60 %, a rewrite 30 %, a crossing 10 %.
"""

import math
import statistics
from collections import Counter

from kbevolve.archive.records import Operator
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.searcher import Observation, Setup
from kbevolve.evolve.simulation.searchers.baselines import FirstLook, favourite
from kbevolve.evolve.simulation.simulated_llm import Task

ISLANDS = 2
ARCHIVE = 40
SHARPNESS = 10.0
KINDS = {Operator.MUTATE: 0.6, Operator.REWRITE: 0.3, Operator.CROSS: 0.1}


class ShinkaSearcher(FirstLook):
    """Weighted by fitness relative to the median, and by how few children a program had."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._islands: list[list[Observation]] = [[] for _ in range(ISLANDS)]
        self._children: Counter[tuple[int, Program]] = Counter()
        self._number = 0
        self._island = 0

    def task(self, spent: int) -> Task:
        """A child of a parent on an island drawn evenly."""
        self._number += 1
        rng = self._setup.rng("shinka", self._number)
        self._island = rng.randrange(ISLANDS)
        home = self._elite(self._island)
        scores = [one.score or 0.0 for one in home]
        middle = statistics.median(scores)
        scale = max(statistics.median(abs(score - middle) for score in scores), 1e-6)
        weights = [
            _sigmoid(SHARPNESS * ((one.score or 0.0) - middle) / scale)
            / (1 + self._children[self._island, one.program])
            for one in home
        ]
        parent = rng.choices(home, weights)[0] if sum(weights) > 0 else rng.choice(home)
        self._children[self._island, parent.program] += 1
        others = [one for one in home if one.program != parent.program]
        shown = [*others[:1], *(rng.sample(others[1:], 1) if len(others) > 1 else [])]
        operator = rng.choices(list(KINDS), list(KINDS.values()))[0]
        if operator is Operator.CROSS and not shown:
            operator = Operator.MUTATE
        mates = (shown[-1].program,) if operator is Operator.CROSS else ()
        return Task(
            operator=operator,
            parents=(parent.program, *mates),
            idea=favourite(self._setup, parent.program, self._number),
            inspirations=tuple(one.program for one in shown),
        )

    def observe(self, found: Observation) -> None:
        """Correct children join the island of their parent."""
        super().observe(found)
        if found.score is None or found.duplicate:
            return
        for number, island in enumerate(self._islands):
            if found.task is None or number == self._island:
                island.append(found)

    def _elite(self, island: int) -> list[Observation]:
        """The island's part of the archive; the whole island's best when none of it is there."""
        every = {id(one): one for home in self._islands for one in home}
        archive = {id(one) for one in sorted(every.values(), key=lambda one: -(one.score or 0.0))[:ARCHIVE]}
        home = sorted(self._islands[island], key=lambda one: -(one.score or 0.0))
        return [one for one in home if id(one) in archive] or home[:1]


def _sigmoid(value: float) -> float:
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
