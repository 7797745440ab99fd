"""OpenEvolve's sampling, as version 0.4.0 defines it (``database.py`` and ``config.DatabaseConfig``), on programs.

Five islands take turns. A parent is drawn from its island: with 20 % any program, with 70 % any of the island's in the
archive of the hundred best, with 10 % in proportion to fitness, never below a thousandth. Each island has a grid over
code length and diversity, ten bins an axis, and shows the best of its cells; whoever leaves a cell stays on the island.
Every fifty generations of an island a tenth of it is copied to both neighbours. A landscape's niches stand in for the
grid here, for its programs have no length. The real database is another law (`laws.openevolve_database`).
"""

import math
from collections.abc import Sequence
from random import Random

from kbevolve.archive.records import Operator
from kbevolve.evolve.simulation.author import Task
from kbevolve.evolve.simulation.searcher import Found, Setting
from kbevolve.evolve.simulation.searchers.baselines import FirstLook, favourite

ISLANDS = 5
ARCHIVE = 100
EXPLORATION, EXPLOITATION = 0.2, 0.7
LEAST_FITNESS = 1e-3
MIGRATION_INTERVAL = 50
MIGRATION_RATE = 0.1
INSPIRATIONS = 5


class OpenEvolveLaw(FirstLook):
    """Islands and an archive of the best. Nobody has to leave: its limit is a thousand programs."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._islands: list[list[Found]] = [[] for _ in range(ISLANDS)]
        self._generations = [0] * ISLANDS
        self._migrated = 0
        self._turn = 0

    def task(self, spent: int) -> Task:
        """An edit of a parent from the island whose turn it is."""
        island = self._turn % ISLANDS
        rng = self._setting.rng("openevolve", self._turn)
        parent = self._parent(island, rng)
        shown = self._shown(island, parent, rng)
        return Task(
            operator=Operator.MUTATE,
            parents=(parent.program,),
            idea=favourite(self._setting, parent.program, self._turn),
            inspirations=tuple(one.program for one in shown),
        )

    def note(self, found: Found) -> None:
        """Valid children join the island that bore them; failures get the fitness 0 and join it, too, in OpenEvolve.

        Such a parent would be an error to the author here, so they are left out, which favours the law.
        """
        super().note(found)
        if found.task is None:
            if found.score is not None:
                for home in self._islands:  # an empty island begins with a copy of the best
                    home.append(found)
            return
        island = self._turn % ISLANDS
        self._turn += 1
        if found.score is not None and not found.duplicate:
            self._islands[island].append(found)
        self._generations[island] += 1
        if max(self._generations) - self._migrated >= MIGRATION_INTERVAL:
            self._migrate()

    def _parent(self, island: int, rng: Random) -> Found:
        home, kind = self._islands[island], rng.random()
        if kind < EXPLORATION:
            return rng.choice(home)
        if kind < EXPLORATION + EXPLOITATION:
            elite = self._archive()
            own = [one for one in elite if any(one is other for other in home)]
            return rng.choice(own or elite)
        weights = [max(fitness(one), LEAST_FITNESS) for one in home]
        return rng.choices(home, weights)[0]

    def _archive(self) -> list[Found]:
        every = {id(one): one for island in self._islands for one in island}
        return sorted(every.values(), key=lambda one: -(one.score or 0.0))[:ARCHIVE]

    def _shown(self, island: int, parent: Found, rng: Random) -> Sequence[Found]:
        """The island's best, then the elites of its cells, then any of it."""
        home = sorted(self._islands[island], key=lambda one: -(one.score or 0.0))
        cells: dict[str, Found] = {}
        for one in home:
            cells.setdefault(self._setting.landscape.niche(one.program), one)
        rest = [one for one in cells.values() if one is not home[0]]
        rng.shuffle(rest)
        shown = [one for one in (home[0], *rest) if one is not parent]
        return shown[:INSPIRATIONS]

    def _migrate(self) -> None:
        self._migrated = max(self._generations)
        leaving = [
            sorted(island, key=lambda one: -(one.score or 0.0))[: max(1, int(len(island) * MIGRATION_RATE))]
            for island in self._islands
        ]
        for number, migrants in enumerate(leaving):
            for target in ((number + 1) % ISLANDS, (number - 1) % ISLANDS):
                home = self._islands[target]
                home += [one for one in migrants if all(one.program != other.program for other in home)]


def fitness(found: Found) -> float:
    """The score as OpenEvolve is given one: the speedup itself."""
    return math.exp(found.score or 0.0)
