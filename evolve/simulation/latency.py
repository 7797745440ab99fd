"""How many author calls and how much time a search needs, by `search.lookahead` and the seconds of authors and judge.

What a search finds depends on its lookahead alone, and not on who answers first (`search.search`). So an episode is run
as always, and its moments are worked out afterwards: a generation is asked for when the one that it builds on has
closed; its authors write at the same time; one judge takes the oldest kernel that waits. An author call is a child
that a model writes, or its repair. Values for tunables take no time.
"""

import heapq
import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random

from kbevolve.archive.records import Operator
from kbevolve.configs.settings import islands_for
from kbevolve.evolve.simulation.landscape import Landscape, Program
from kbevolve.evolve.simulation.searcher import Observation, Setup, run_episode
from kbevolve.evolve.simulation.searchers.ours import OurSearcher
from kbevolve.evolve.simulation.simulated_llm import AUTHORS, Task
from kbevolve.evolve.simulation.tournament import find_landscape, standard_error

#: Generation, child and attempt; the judge takes the smallest first.
Place = tuple[int, int, int]

#: Values of `search.lookahead` that are compared. The first one is what "auto" means for a model.
LOOKAHEADS = (0, 1, 2)
#: Standard deviation of the logarithm of the seconds of calls and of evaluations.
SPREAD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Mean seconds of an author call and of an evaluation."""

    author: float
    judge: float


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """A child or its repair: whether an author wrote it, whether it was judged, its true log speedup if it is valid."""

    written: bool
    judged: bool
    value: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """When a search paid and what it knew, in seconds from its beginning."""

    #: When authors were asked, in order.
    calls: Sequence[float]
    #: When a program was known to be valid, in order, and its log speedup.
    known: Sequence[tuple[float, float]]
    end: float

    def until(self, value: float) -> tuple[int, float] | None:
        """Author calls, those under way included, and seconds until a log speedup was reached; None if it never was."""
        at = next((at for at, reached in self.known if reached >= value), None)
        return None if at is None else (bisect_right(self.calls, at), at)

    def after(self, calls: int) -> float:
        """The log speedup that was known before this author call, counted from 0, or at the end."""
        end = self.calls[calls] if calls < len(self.calls) else self.end
        return max((value for at, value in self.known if at <= end), default=-math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyScore:
    """Searches of one lookahead on one landscape, until they are as fast as half of those without one are half-way.

    A search that never is counts with all its calls and hours.
    """

    landscape: str
    #: Evaluations of each search.
    budget: int
    islands: int
    lookahead: int
    #: That speed over the fastest that there is, and the share of the searches that reach it.
    target: float
    reached: float
    #: Means over the searches, and the standard error of the difference to those without lookahead, by seeds.
    calls: float
    calls_se: float
    hours: float
    hours_se: float


def compare_lookaheads(
    landscapes: Sequence[str],
    *,
    latency: Latency,
    budgets: Sequence[int],
    seeds: int,
    author: str = "weak",
    islands: int | None = None,
    jobs: int = 1,
) -> list[LatencyScore]:
    """Searches with each of `LOOKAHEADS`, over the same seeds.

    Args:
        landscapes: as in `tournament.compare_searchers`.
        latency: seconds.
        budgets: evaluations of a search.
        seeds: searches of each lookahead.
        author: name of the simulated model.
        islands: how many; None for as many as a run has with this limit of evaluations.
        jobs: processes.

    Raises:
        UsageError: a file is no landscape.
    """
    for name in landscapes:
        find_landscape(name)  # a bad file is reported before anything is run
    asked = list(product(landscapes, budgets, LOOKAHEADS, range(seeds)))
    with ProcessPoolExecutor(jobs) as processes:
        found = processes.map(
            partial(simulated, latency=latency, author=author, islands=islands), *zip(*asked, strict=True), chunksize=4
        )
        timelines = dict(zip(asked, found, strict=True))
    return [
        score
        for name, budget in product(landscapes, budgets)
        for score in _scores(
            name,
            budget,
            islands or islands_for(budget),
            [[timelines[name, budget, one, seed] for seed in range(seeds)] for one in LOOKAHEADS],
        )
    ]


def simulated(
    landscape: str,
    budget: int,
    lookahead: int,
    seed: int,
    *,
    latency: Latency,
    islands: int | None,
    author: str = "weak",
) -> Timeline:
    """One search; as for `compare_lookaheads`."""
    watched: list[_Watched] = []

    def make(setup: Setup) -> _Watched:
        watched.append(_Watched(OurSearcher(setup, lookahead=lookahead, islands=islands), setup.landscape))
        return watched[0]

    run_episode(find_landscape(landscape), make, llm=AUTHORS[author], budget=budget, seed=seed)
    (found,) = watched
    return timeline(found.children, lookahead=lookahead, latency=latency, seed=seed)


def timeline(
    generations: Sequence[Sequence[Sequence[SimulatedAttempt]]], *, lookahead: int, latency: Latency, seed: int = 0
) -> Timeline:
    """When what happened.

    Args:
        generations: the attempts of the children of each generation; the first one is the starting programs.
        lookahead: generations that may be under way beside the oldest, once the first one has closed.
        latency: mean seconds.
        seed: names the seconds of each attempt.
    """
    calls: list[float] = []
    known: list[tuple[float, float]] = []
    #: When an attempt is written or, if True, its verdict is there; and what waits for the judge.
    events: list[tuple[float, Place, bool]] = []
    queue: list[Place] = []
    done: Counter[int] = Counter()
    now, created, closed, busy = 0.0, 0, 0, False

    def seconds(mean: float, whose: str, place: Place) -> float:
        return mean * math.exp(Random(f"{seed}/{whose}/{place}").gauss(-(SPREAD**2) / 2, SPREAD))

    def begin(place: Place) -> None:
        generation, island, slot = place
        written = generations[generation][island][slot].written
        if written:
            calls.append(now)
        heapq.heappush(events, (now + (seconds(latency.author, "author", place) if written else 0.0), place, False))

    while closed < len(generations):
        while created < len(generations) and created <= (closed + lookahead if closed else 0):
            for island in range(len(generations[created])):
                begin((created, island, 0))
            created += 1
        now, place, judged = heapq.heappop(events)
        generation, island, slot = place
        attempt = generations[generation][island][slot]
        busy = busy and not judged
        if attempt.judged and not judged:
            heapq.heappush(queue, place)
        else:
            if attempt.value is not None:
                known.append((now, attempt.value))
            if slot + 1 < len(generations[generation][island]):
                begin((generation, island, slot + 1))
            else:
                done[generation] += 1
        if queue and not busy:
            busy = True
            place = heapq.heappop(queue)
            heapq.heappush(events, (now + seconds(latency.judge, "judge", place), place, True))
        while closed < len(generations) and done[closed] == len(generations[closed]):
            closed += 1
    return Timeline(calls, known, now)


@dataclass(slots=True)
class _Watched:
    """Implements `Searcher`: ours, with a record of its children."""

    ours: OurSearcher
    landscape: Landscape
    #: Attempts by generation and child; the starting programs first.
    children: list[list[list[SimulatedAttempt]]] = field(default_factory=lambda: [[]])

    def task(self, spent: int) -> Task:
        task = self.ours.task(spent)
        if self.ours.island == 0:
            self.children.append([])
        self.children[-1].append([])
        return task

    def observe(self, found: Observation) -> None:
        if found.task is None:
            self.children[0].append([])
        written = found.task is not None and found.task.operator is not Operator.TUNE
        value = None if found.failure else self.landscape.true_value(found.program)
        self.children[-1][-1].append(SimulatedAttempt(written, not found.duplicate, value))
        self.ours.observe(found)

    def reserve(self) -> int:
        return 0

    def publish(self) -> tuple[Program, float]:
        return self.ours.publish()


def _scores(name: str, budget: int, islands: int, timelines: Sequence[Sequence[Timeline]]) -> Iterable[LatencyScore]:
    """The scores of each lookahead, from its timelines by seed."""
    target = statistics.median(one.after(len(one.calls) // 2) for one in timelines[0])
    found = [[one.until(target) for one in row] for row in timelines]
    costs = [
        [until or (len(one.calls), one.end) for one, until in zip(row, untils, strict=True)]
        for row, untils in zip(timelines, found, strict=True)
    ]
    landscape = find_landscape(name)
    for lookahead, untils, row in zip(LOOKAHEADS, found, costs, strict=True):
        yield LatencyScore(
            landscape=landscape.name,
            budget=budget,
            islands=islands,
            lookahead=lookahead,
            target=math.exp(target - landscape.optimum),
            reached=statistics.fmean(until is not None for until in untils),
            calls=statistics.fmean(calls for calls, _ in row),
            calls_se=standard_error([one[0] - first[0] for one, first in zip(row, costs[0], strict=True)]),
            hours=statistics.fmean(seconds for _, seconds in row) / 3600,
            hours_se=standard_error([(one[1] - first[1]) / 3600 for one, first in zip(row, costs[0], strict=True)]),
        )
