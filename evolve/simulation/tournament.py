"""Searchers against each other: the same landscapes, budgets and seeds, and what is certain about the differences."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Landscape
from kbevolve.evolve.simulation.measured import packaged, read_landscape
from kbevolve.evolve.simulation.searcher import EpisodeResult, SearcherFactory, run_episode
from kbevolve.evolve.simulation.searchers.baselines import BestOfNSearcher, GreedySearcher
from kbevolve.evolve.simulation.searchers.openevolve import OpenEvolveSearcher
from kbevolve.evolve.simulation.searchers.ours import OurSearcher
from kbevolve.evolve.simulation.searchers.shinka import ShinkaSearcher
from kbevolve.evolve.simulation.simulated_llm import AUTHORS

#: Name -> searcher; ours first.
SEARCHERS: Mapping[str, SearcherFactory] = {
    "ours": OurSearcher,
    "best-of-n": BestOfNSearcher,
    "greedy": GreedySearcher,
    "openevolve": OpenEvolveSearcher,
    "shinka": ShinkaSearcher,
}
OURS = "ours"
#: Evaluations at which searchers are compared. Each is a search of its own: a search with fewer does other things.
BUDGETS = (25, 50, 100, 150, 300)
SEEDS = 100
#: Episodes that a process is given at once.
_CHUNK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SearcherScore:
    """How one searcher did on one landscape at one budget."""

    landscape: str
    searcher: str
    budget: int
    #: True speed of what is published over the fastest speed that there is; with its standard error.
    mean: float
    se: float
    #: Ours minus this searcher's fraction over the same seeds, with the standard error of that; 0 for ours.
    behind: float
    behind_se: float
    #: Published over true speed minus 1, valid share of the evaluations, share of the drafts that were known.
    inflation: float
    validity: float
    duplicates: float


def compare_searchers(
    landscapes: Sequence[str],
    *,
    searchers: Sequence[str] = tuple(SEARCHERS),
    budgets: Sequence[int] = BUDGETS,
    seeds: int = SEEDS,
    author: str = "weak",
    jobs: int = 1,
) -> list[SearcherScore]:
    """All searchers on all landscapes.

    Args:
        landscapes: names of ladders or of packaged landscapes, or paths of files (`simulation.measured`).
        searchers: names in `SEARCHERS`, ours among them: differences are to it.
        budgets: evaluations of a search.
        seeds: episodes of each searcher, paired by seed.
        author: name of the simulated model.
        jobs: processes.

    Raises:
        UsageError: a file is no landscape.
    """
    for landscape in landscapes:
        find_landscape(landscape)  # a bad file is reported before anything is run
    asked = [
        (landscape, searcher, budget, seed)
        for landscape in landscapes
        for budget in budgets
        for seed in range(seeds)
        for searcher in searchers
    ]
    with ProcessPoolExecutor(jobs) as processes:
        episodes = processes.map(partial(_one, author=author), asked, chunksize=_CHUNK)
        results = dict(zip(asked, episodes, strict=True))
    return [
        _score(results, landscape, searcher, budget, seeds)
        for landscape in landscapes
        for searcher in searchers
        for budget in budgets
    ]


def as_json(scores: Iterable[SearcherScore]) -> dict[str, dict[str, dict[str, Any]]]:
    """Landscape -> searcher -> budget -> mean and standard error; and of the largest budget inflation and the like."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in scores:
        row = found.setdefault(one.landscape, {}).setdefault(one.searcher, {})
        row[str(one.budget)] = {"mean": round(one.mean, 4), "se": round(one.se, 4)}
        if one.searcher != OURS:
            row[str(one.budget)] |= {"behind": round(one.behind, 4), "behind_se": round(one.behind_se, 4)}
        # Budgets come in order, so the largest one's stay.
        row["inflation"] = round(one.inflation, 4)
        row["validity"] = round(one.validity, 3)
        row["duplicates"] = round(one.duplicates, 3)
    return found


@cache
def find_landscape(name: str) -> Landscape:
    """A ladder, a packaged landscape, or the landscape in a file.

    Raises:
        UsageError: the file is no landscape.
    """
    if name in LADDERS:
        return find_ladder(name)
    return packaged()[name] if name in packaged() else read_landscape(Path(name))


def _one(asked: tuple[str, str, int, int], *, author: str) -> EpisodeResult:
    landscape, searcher, budget, seed = asked
    return run_episode(find_landscape(landscape), SEARCHERS[searcher], llm=AUTHORS[author], budget=budget, seed=seed)


def _score(
    results: Mapping[tuple[str, str, int, int], EpisodeResult], landscape: str, searcher: str, budget: int, seeds: int
) -> SearcherScore:
    mine = [results[landscape, searcher, budget, seed] for seed in range(seeds)]
    fractions = [_fraction(one) for one in mine]
    ours = [_fraction(results[landscape, OURS, budget, seed]) for seed in range(seeds)]
    lead = [first - second for first, second in zip(ours, fractions, strict=True)]
    return SearcherScore(
        landscape=find_landscape(landscape).name,
        searcher=searcher,
        budget=budget,
        mean=statistics.fmean(fractions),
        se=standard_error(fractions),
        behind=statistics.fmean(lead),
        behind_se=standard_error(lead),
        inflation=statistics.fmean(math.expm1(one.claimed - one.delivered) for one in mine),
        validity=statistics.fmean(one.valid / one.spent for one in mine),
        duplicates=statistics.fmean(one.duplicates / (one.spent + one.duplicates) for one in mine),
    )


def _fraction(result: EpisodeResult) -> float:
    return math.exp(result.delivered - result.optimum)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of some values; 0 for a single one."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
