"""Laws against each other: the same landscapes, budgets and seeds, and what is certain about the differences."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbevolve.evolve.simulation.episode import EpisodeResult, run_episode
from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Landscape
from kbevolve.evolve.simulation.measured import read_landscape
from kbevolve.evolve.simulation.searcher import SearcherFactory
from kbevolve.evolve.simulation.searchers.baselines import BestOfN, Greedy
from kbevolve.evolve.simulation.searchers.openevolve import OpenEvolveSearcher
from kbevolve.evolve.simulation.searchers.ours import OurSearcher
from kbevolve.evolve.simulation.searchers.shinka import ShinkaSearcher
from kbevolve.evolve.simulation.simulated_llm import SimulatedLLM

#: Name -> law; ours first.
SEARCHERS: Mapping[str, SearcherFactory] = {
    "ours": OurSearcher,
    "best-of-n": BestOfN,
    "greedy": Greedy,
    "openevolve": OpenEvolveSearcher,
    "shinka": ShinkaSearcher,
}
OURS = "ours"
#: Evaluations at which laws are compared. Each is a search of its own: a search that has less does other things.
BUDGETS = (25, 50, 100, 150, 300)
SEEDS = 100
#: Trials that a process is given at once.
_CHUNK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SearcherScore:
    """How one law did on one landscape at one budget."""

    landscape: str
    law: str
    budget: int
    #: Fraction of the fastest speed that is there, of what is published, by its true speed; with its standard error.
    mean: float
    se: float
    #: Ours minus this law's fraction over the same seeds, with the standard error of that; 0 for ours.
    behind: float
    behind_se: float
    #: Published over true speed minus 1, valid share of the evaluations, share of the drafts that were known.
    inflation: float
    validity: float
    duplicates: float


def compare_searchers(
    landscapes: Sequence[str],
    *,
    laws: Sequence[str] = tuple(SEARCHERS),
    budgets: Sequence[int] = BUDGETS,
    seeds: int = SEEDS,
    jobs: int = 1,
) -> list[SearcherScore]:
    """All laws on all landscapes.

    Args:
        landscapes: names of ladders, or paths of files (`trials.measured`).
        laws: names in `SEARCHERS`, ours among them: differences are to it.
        budgets: evaluations of a search.
        seeds: trials of each law, paired by seed.
        jobs: processes.

    Raises:
        UsageError: a file is no landscape.
    """
    for landscape in landscapes:
        _landscape(landscape)  # a bad file is told before anything is run
    asked = [
        (landscape, law, budget, seed)
        for landscape in landscapes
        for budget in budgets
        for seed in range(seeds)
        for law in laws
    ]
    with ProcessPoolExecutor(jobs) as processes:
        results = dict(zip(asked, processes.map(_one, asked, chunksize=_CHUNK), strict=True))
    return [
        _standing(results, landscape, law, budget, seeds)
        for landscape in landscapes
        for law in laws
        for budget in budgets
    ]


def as_json(standings: Iterable[SearcherScore]) -> dict[str, dict[str, dict[str, Any]]]:
    """Landscape -> law -> budget -> mean and standard error; and of the largest budget inflation and the like."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in standings:
        row = found.setdefault(one.landscape, {}).setdefault(one.law, {})
        row[str(one.budget)] = {"mean": round(one.mean, 4), "se": round(one.se, 4)}
        if one.law != OURS:
            row[str(one.budget)] |= {"behind": round(one.behind, 4), "behind_se": round(one.behind_se, 4)}
        # Budgets come in order, so the largest one's stay.
        row["inflation"] = round(one.inflation, 4)
        row["validity"] = round(one.validity, 3)
        row["duplicates"] = round(one.duplicates, 3)
    return found


@cache
def _landscape(name: str) -> Landscape:
    return find_ladder(name) if name in LADDERS else read_landscape(Path(name))


def _one(asked: tuple[str, str, int, int]) -> EpisodeResult:
    landscape, law, budget, seed = asked
    return run_episode(_landscape(landscape), SEARCHERS[law], llm=SimulatedLLM(), budget=budget, seed=seed)


def _standing(
    results: Mapping[tuple[str, str, int, int], EpisodeResult], landscape: str, law: str, budget: int, seeds: int
) -> SearcherScore:
    mine = [results[landscape, law, budget, seed] for seed in range(seeds)]
    fractions = [_fraction(one) for one in mine]
    ours = [_fraction(results[landscape, OURS, budget, seed]) for seed in range(seeds)]
    lead = [first - second for first, second in zip(ours, fractions, strict=True)]
    return SearcherScore(
        landscape=_landscape(landscape).name,
        law=law,
        budget=budget,
        mean=statistics.fmean(fractions),
        se=_standard_error(fractions),
        behind=statistics.fmean(lead),
        behind_se=_standard_error(lead),
        inflation=statistics.fmean(math.expm1(one.claimed - one.delivered) for one in mine),
        validity=statistics.fmean(one.valid / one.spent for one in mine),
        duplicates=statistics.fmean(one.duplicates / (one.spent + one.duplicates) for one in mine),
    )


def _fraction(result: EpisodeResult) -> float:
    return math.exp(result.delivered - result.optimum)


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
