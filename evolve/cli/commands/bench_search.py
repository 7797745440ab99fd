"""`kbevolve bench-search`: searchers at equal budget, without a model or a device."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from kbevolve.archive.formatting import percent_words
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.options import json_line_option, names_in
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import Column, print_table, say
from kbevolve.evolve.simulation.ladders import LADDERS
from kbevolve.evolve.simulation.measured import packaged
from kbevolve.evolve.simulation.tournament import BUDGETS, OURS, SEARCHERS, SEEDS, SearcherScore, compare_searchers
from kbevolve.evolve.simulation.tournament import as_json as plain_scores

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
    help="A landscape in the format of docs/landscapes.md, instead of all that come with kbevolve; may be given again.",
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
@json_line_option
def bench_search(
    files: tuple[Path, ...],
    ladders: tuple[str, ...],
    seeds: int,
    budgets: str,
    names: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compare searchers at equal budget on landscapes whose optimum is known.

    Needs no model and no GPU. All searchers have the same simulated language model, cache of duplicates, repair turns
    and seeds. Shown is the fraction of the fastest speed that a search delivers, by the true speed of what it would
    publish. `ours` makes its choices by the functions by which `kbevolve run` makes them.
    """
    chosen = tuple(SEARCHERS) if names is None else names_in(names, SEARCHERS, "searcher")
    searchers, numbers, console = tuple(dict.fromkeys((OURS, *chosen))), _numbers(budgets), Console()
    everything: list[SearcherScore] = []
    for landscape in [*ladders, *map(str, files)] or [*LADDERS, *packaged()]:
        scores = compare_searchers(
            [landscape], searchers=searchers, budgets=numbers, seeds=seeds, jobs=jobs or len(os.sched_getaffinity(0))
        )
        everything += scores
        if not as_json:
            console.print(f"[bold]{scores[0].landscape}[/bold], {seeds} searches of each searcher")
            _print(console, scores)
    if as_json:
        print_json_line(plain_scores(everything))
    else:
        say(console, _LEGEND)


def _print(console: Console, scores: Sequence[SearcherScore]) -> None:
    by_searcher: dict[str, dict[int, SearcherScore]] = {}
    for one in scores:
        by_searcher.setdefault(one.searcher, {})[one.budget] = one
    budgets = sorted({one.budget for one in scores})

    def at(budget: int) -> Column[dict[int, SearcherScore]]:
        return Column(f"at {budget}", lambda by_budget: _mean_words(by_budget[budget]), right=True)

    last = budgets[-1]
    columns: list[Column[dict[int, SearcherScore]]] = [
        Column("searcher", lambda by_budget: by_budget[last].searcher),
        *map(at, budgets),
        Column("overestimate", lambda by_budget: percent_words(by_budget[last].inflation, 1), right=True),
        Column("valid", lambda by_budget: percent_words(by_budget[last].validity), right=True, least_width=100),
        Column("duplicates", lambda by_budget: percent_words(by_budget[last].duplicates), right=True, least_width=100),
    ]
    print_table(console, columns, by_searcher.values())
    console.print()


def _mean_words(one: SearcherScore) -> str:
    clear = abs(one.behind) > 2 * one.behind_se
    mark = ("-" if one.behind > 0 else "+") if clear else " "
    return f"{one.mean:.3f} ±{one.se:.3f} {mark}"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] < 10:
        raise UsageError(f"--budgets {text!r}: give numbers from 10 on with commas between them, e.g. 50,150,300")
    return tuple(numbers)
