"""What the constants of the default strategy are worth on the ladders: each one varied alone, all others as committed.

    python -m benchmarks.search_constants [--seeds 12] [--budget 150] [--landscapes ladder-a,ladder-b] [--jobs 1]
        [--islands 4] [--author recorded] [--only "champion far ahead"]

Every variant searches every landscape with the same seeds as the committed constants; the seeds are not those of
`kbevolve bench-search`, so that constants chosen here are not chosen on its tables. Printed, as a Markdown table: the
fraction of the optimum that is delivered (mean over landscapes and seeds), and its difference to the committed
constants with the standard error of that difference, by pairs. It changes nothing.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

from kbevolve.archive.records import Operator
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.simulation.searcher import Setup, run_episode
from kbevolve.evolve.simulation.searchers.ours import OurSearcher
from kbevolve.evolve.simulation.simulated_llm import AUTHORS
from kbevolve.evolve.simulation.tournament import find_landscape
from kbevolve.evolve.strategies.evolve import RANKS

#: The first seed. Those of `bench-search` begin at 0.
FIRST_SEED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One constant with another value; the default is all constants as committed."""

    name: str = "as committed"
    value: str = ""
    #: Dotted name of a constant -> its value instead; and settings of the search.
    constants: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None


def variants() -> list[Variant]:
    """The committed constants first."""
    evolve, operators = "kbevolve.evolve.strategies.evolve", "kbevolve.evolve.strategies.operators"
    plain: list[tuple[str, str, Sequence[float]]] = [
        ("share of rivals", f"{evolve}.RIVALS", (0.0, 0.25)),
        ("rivals until", f"{evolve}.RIVALS_UNTIL", (90, 10**9)),
        ("inspirations from", f"{evolve}.INSPIRED_FROM", (0, 10**9)),
        ("champion far ahead", f"{evolve}.FAR_AHEAD", (1.25, 2.0, 10**9)),
        ("stale after", f"{operators}.STALE", (15, 60)),
        ("ideas by claims", "kbevolve.islands.credit.claims.Calibration.trusted", (0,)),
        ("caution of ranks", "kbevolve.islands.island.CAUTION", (0.0, 1.0)),
    ]
    found = [Variant()]
    for pressure in (2.0, 5.0, 50.0):
        ranks = replace(RANKS, pressure=pressure)
        found.append(Variant(name="rank pressure", value=f"{pressure:g}", constants={f"{evolve}.RANKS": ranks}))
    for share in (0.1, 0.5):
        shares = {Operator.MUTATE: 1 - share, Operator.REWRITE: share}
        found.append(Variant(name="rewrites at first", value=f"{share:g}", constants={f"{operators}.FLOWING": shares}))
    for name, constant, values in plain:
        found += [Variant(name=name, value=f"{value:g}", constants={constant: value}) for value in values]
    for setting, values in (("tune_share", (0.0, 0.6)), ("child_discount", (0.0, 1.0))):
        found += [Variant(name=f"search.{setting}", value=f"{value:g}", settings={setting: value}) for value in values]
    found.append(Variant(name="search.operator_choice", value="credit", settings={"operator_choice": "credit"}))
    return found


class VariedSearcher(OurSearcher):
    """Ours with other settings of the search, except for the number of islands, which is None for the usual one."""

    def __init__(self, setup: Setup, *, changes: Mapping[str, Any], islands: int | None = None) -> None:
        super().__init__(setup, islands=islands)
        self._settings: SearchSettings = self._settings.model_copy(update=dict(changes))


def fractions(
    variant: Variant,
    *,
    landscapes: Sequence[str],
    budget: int,
    seeds: int,
    islands: int | None = None,
    author: str = "weak",
) -> list[float]:
    """The fraction of the optimum that each search delivers, landscape by landscape."""
    for name, value in (variant.constants or {}).items():
        mock.patch(name, value).start()  # AttributeError where there is no such constant
    make = partial(VariedSearcher, changes=variant.settings or {}, islands=islands)
    try:
        return [
            math.exp(result.delivered - result.optimum)
            for name in landscapes
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            for result in (run_episode(find_landscape(name), make, llm=AUTHORS[author], budget=budget, seed=seed),)
        ]
    finally:
        mock.patch.stopall()


def table(variants: Sequence[Variant], found: Sequence[Sequence[float]]) -> str:
    """Markdown, the committed constants in the first row."""
    lines = ["| constant | value | fraction | against committed |", "|---|---|---|---|"]
    for variant, mine in zip(variants, found, strict=True):
        pairs = [one - committed for one, committed in zip(mine, found[0], strict=True)]
        difference = statistics.fmean(pairs)
        error = statistics.stdev(pairs) / math.sqrt(len(pairs))
        against = f"{difference:+.3f} ± {error:.3f}" if variant is not variants[0] else ""
        lines.append(f"| {variant.name} | {variant.value} | {statistics.fmean(mine):.3f} | {against} |")
    return "\n".join(lines)


def main() -> None:
    """Search with every variant; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12, help="searches of each variant on each landscape, at least 2")
    parser.add_argument("--budget", type=int, default=150, help="evaluations of a search")
    parser.add_argument("--landscapes", default="ladder-a,ladder-b,ladder-c", help="ladders, packaged names or files")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--islands", type=int, help="default: as a run with this limit of evaluations")
    parser.add_argument("--author", choices=list(AUTHORS), default="weak", help="the simulated model")
    parser.add_argument("--only", help="vary only this constant")
    asked = parser.parse_args()
    committed, *varied = variants()
    everything = [committed, *(one for one in varied if asked.only in (None, one.name))]
    measure = partial(
        fractions,
        landscapes=asked.landscapes.split(","),
        budget=asked.budget,
        seeds=asked.seeds,
        islands=asked.islands,
        author=asked.author,
    )
    with ProcessPoolExecutor(asked.jobs) as processes:
        print(table(everything, list(processes.map(measure, everything))))


if __name__ == "__main__":
    main()
