"""`kbevolve bench-search`: searchers at equal budget, without a model or a device."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from kbevolve.configs.errors import UsageError, nearest
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import Column, print_table
from kbevolve.evolve.simulation.ladders import LADDERS
from kbevolve.evolve.simulation.measured import packaged
from kbevolve.evolve.simulation.tournament import (
    BUDGETS,
    OURS,
    SEARCHERS,
    SEEDS,
    SearcherScore,
    as_json,
    compare_searchers,
)

_LEGEND = (
    "Fraction of the fastest possible speed after so many evaluations, with its standard error. "
    f"-: behind {OURS} by more than two standard errors of the difference over the same seeds; +: ahead by as much."
)


@click.command(epilog="Example: kbevolve bench-search --seeds 20 --budgets 50,150")
@click.option(
    "--landscape",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="A landscape of yours in the format of docs/landscapes.md, instead of all that come with kbevolve; may be "
    "given again.",
)
@click.option("--ladder", "ladders", multiple=True, metavar="NAME", help=f"One of {', '.join(LADDERS)} instead of all.")
@click.option("--seeds", type=click.IntRange(min=2), default=SEEDS, show_default=True, help="Searches of each.")
@click.option(
    "--budgets",
    default=",".join(map(str, BUDGETS)),
    show_default=True,
    metavar="LIST",
    help="Evaluations of a search; each is a comparison of its own.",
)
@click.option("--searchers", "names", metavar="LIST", help=f"Only these beside {OURS}: {', '.join(SEARCHERS)}.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one for each core]")
@click.option("--json", "as_object", is_flag=True, help="End with one JSON object for scripts.")
def bench_search(
    files: tuple[Path, ...],
    ladders: tuple[str, ...],
    seeds: int,
    budgets: str,
    names: str | None,
    jobs: int | None,
    as_object: bool,
) -> None:
    """Compare searchers at equal budget on landscapes whose optimum is known.

    Needs no model and no GPU. All searchers have the same simulated language model, cache of duplicates, repair turns
    and seeds. Shown is the fraction of the fastest speed that a search delivers, by the true speed of what it would
    publish. `ours` makes its choices by the functions by which `kbevolve run` makes them.
    """
    searchers, numbers, console = _searchers(names), _numbers(budgets), Console()
    everything: list[SearcherScore] = []
    for landscape in [*ladders, *map(str, files)] or [*LADDERS, *packaged()]:
        scores = compare_searchers(
            [landscape], searchers=searchers, budgets=numbers, seeds=seeds, jobs=jobs or len(os.sched_getaffinity(0))
        )
        everything += scores
        if not as_object:
            console.print(f"[bold]{scores[0].landscape}[/bold], {seeds} searches of each searcher")
            _print(console, scores)
    if as_object:
        print_json_line(as_json(everything))
    else:
        console.print(_LEGEND, soft_wrap=True)


def _print(console: Console, scores: Sequence[SearcherScore]) -> None:
    budgets = sorted({one.budget for one in scores})
    columns = [
        Column(name="searcher"),
        *(Column(name=f"at {budget}", right=True) for budget in budgets),
        Column(name="overestimate", right=True),
        Column(name="valid", right=True, least_width=100),
        Column(name="duplicates", right=True, least_width=100),
    ]
    rows = []
    for searcher in dict.fromkeys(one.searcher for one in scores):
        mine = {one.budget: one for one in scores if one.searcher == searcher}
        last = mine[budgets[-1]]
        rows.append(
            [
                searcher,
                *(f"{mine[budget].mean:.3f} ±{mine[budget].se:.3f}{_mark(mine[budget])}" for budget in budgets),
                f"{100 * last.inflation:.1f} %",
                f"{100 * last.validity:.0f} %",
                f"{100 * last.duplicates:.0f} %",
            ]
        )
    print_table(console, columns, rows)
    console.print()


def _mark(one: SearcherScore) -> str:
    if abs(one.behind) <= 2 * one.behind_se:
        return "  "
    return " -" if one.behind > 0 else " +"


def _searchers(names: str | None) -> tuple[str, ...]:
    chosen = tuple(SEARCHERS) if names is None else tuple(name.strip() for name in names.split(",") if name.strip())
    for name in chosen:
        if name not in SEARCHERS:
            raise UsageError(f"no searcher {name!r}. {nearest(name, SEARCHERS)}")
    return tuple(dict.fromkeys((OURS, *chosen)))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 10:
        raise UsageError(f"--budgets {text!r}: give numbers from 10 on with commas between them, e.g. 50,150,300")
    return tuple(numbers)
