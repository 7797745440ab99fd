"""`kbevolve bench-search`: searchers at equal budget, without a model or a device."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from kbevolve.archive.formatting import percent_words
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.options import json_line_option, names_in
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import Column, explain, print_table
from kbevolve.evolve.simulation.ladders import LADDERS
from kbevolve.evolve.simulation.latency import Latency, LatencyScore, compare_lookaheads
from kbevolve.evolve.simulation.measured import packaged
from kbevolve.evolve.simulation.simulated_llm import AUTHORS
from kbevolve.evolve.simulation.tournament import BUDGETS, OURS, SEARCHERS, SEEDS, SearcherScore, compare_searchers
from kbevolve.evolve.simulation.tournament import as_json as plain_scores

_LEGEND = (
    "Fraction of the fastest possible speed after so many evaluations, with its standard error. "
    f"-: behind {OURS} by more than two standard errors of the difference over the same seeds; +: ahead by as much."
)
_LATENCY_LEGEND = (
    "Target: the fraction of the fastest possible speed that half of the searches with lookahead 0 have after half of "
    "their calls. Reached: share of the searches that get there. Author calls and hours until they do, means; a search "
    "that never does counts with all of them. ±: two standard errors of the difference to lookahead 0 over the same "
    "seeds. search.lookahead=auto is 0 for a run with a model."
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
@click.option(
    "--ladder",
    "ladders",
    type=click.Choice(list(LADDERS)),
    multiple=True,
    help="A landscape that is drawn from a seed, instead of all that come with kbevolve; may be given again.",
)
@click.option("--seeds", type=click.IntRange(min=2), default=SEEDS, show_default=True, help="Searches of each.")
@click.option(
    "--budgets",
    default=",".join(map(str, BUDGETS)),
    show_default=True,
    metavar="LIST",
    help="Evaluations of a search; each is a comparison of its own.",
)
@click.option("--searchers", "names", metavar="LIST", help=f"Only these beside {OURS}: {', '.join(SEARCHERS)}.")
@click.option(
    "--author",
    type=click.Choice(list(AUTHORS)),
    default="weak",
    show_default=True,
    help="The simulated model: one that often fails and promises at random, or one as a strong model was recorded.",
)
@click.option(
    "--latency",
    metavar="AUTHOR:JUDGE",
    help="Instead of searchers, compare values of search.lookahead where a call of a model and an evaluation take so "
    "many seconds, e.g. 60:15.",
)
@click.option("--islands", type=click.IntRange(1, 64), help="With --latency.  [default: as a run of these budgets]")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: one for each core]")
@json_line_option
def bench_search(
    files: tuple[Path, ...],
    ladders: tuple[str, ...],
    seeds: int,
    budgets: str,
    names: str | None,
    author: str,
    latency: str | None,
    islands: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compare searchers at equal budget on landscapes whose optimum is known.

    Needs no model and no GPU. All searchers have the same simulated language model, cache of duplicates, repair turns
    and seeds. Shown is the fraction of the fastest speed that a search delivers, by the true speed of what it would
    publish. `ours` makes its choices by the functions by which `kbevolve run` makes them.
    """
    landscapes, jobs = [*ladders, *map(str, files)] or [*LADDERS, *packaged()], jobs or len(os.sched_getaffinity(0))
    if latency is not None:
        if names is not None:
            raise UsageError("--latency compares values of search.lookahead, not --searchers; give one of them")
        compare = partial(
            compare_lookaheads,
            latency=_latency(latency),
            budgets=_numbers(budgets),
            seeds=seeds,
            author=author,
            islands=islands,
            jobs=jobs,
        )
        _bench_lookahead(landscapes, compare, f"{seeds} searches of each lookahead", as_json)
        return
    if islands is not None:
        raise UsageError("--islands is for --latency; without it, searchers have as many as they are made for")
    chosen = tuple(SEARCHERS) if names is None else names_in(names, SEARCHERS, "searcher")
    searchers, numbers, console = tuple(dict.fromkeys((OURS, *chosen))), _numbers(budgets), Console()
    everything: list[SearcherScore] = []
    for landscape in landscapes:
        scores = compare_searchers(
            [landscape], searchers=searchers, budgets=numbers, seeds=seeds, author=author, jobs=jobs
        )
        everything += scores
        if not as_json:
            console.print(f"[bold]{scores[0].landscape}[/bold], {seeds} searches of each searcher")
            _print(console, scores)
    if as_json:
        print_json_line(plain_scores(everything))
    else:
        explain(console, _LEGEND)


def _print(console: Console, scores: Sequence[SearcherScore]) -> None:
    by_searcher: dict[str, dict[int, SearcherScore]] = {}
    for one in scores:
        by_searcher.setdefault(one.searcher, {})[one.budget] = one
    budgets = sorted({one.budget for one in scores})
    last = budgets[-1]

    def at(budget: int) -> Column[dict[int, SearcherScore]]:
        # Where there is no room for all, the larger budgets are shown.
        return Column(
            f"at {budget}",
            lambda by_budget: _mean_words(by_budget[budget]),
            right=True,
            least_width=0 if budget == last else 1,
        )

    columns: list[Column[dict[int, SearcherScore]]] = [
        Column("searcher", lambda by_budget: by_budget[last].searcher),
        *map(at, budgets),
        Column("overestimate", lambda by_budget: percent_words(by_budget[last].inflation, 1), right=True),
        Column("valid", lambda by_budget: percent_words(by_budget[last].validity), right=True, least_width=100),
        Column("duplicates", lambda by_budget: percent_words(by_budget[last].duplicates), right=True, least_width=100),
    ]
    print_table(console, columns, by_searcher.values())
    console.print()


def _bench_lookahead(
    landscapes: Sequence[str], compare: Callable[[list[str]], list[LatencyScore]], words: str, as_json: bool
) -> None:
    console = Console()
    everything: list[LatencyScore] = []
    for landscape in landscapes:
        scores = compare([landscape])
        everything += scores
        if not as_json:
            console.print(f"[bold]{scores[0].landscape}[/bold], {words}")
            print_table(console, _LATENCY_COLUMNS, scores)
            console.print()
    if as_json:
        print_json_line([asdict(one) for one in everything])
    else:
        explain(console, _LATENCY_LEGEND)


def _change(mean: float, error: float, digits: int) -> str:
    return f"{mean:.{digits}f}" + (f" ±{2 * error:.{digits}f}" if error else "")


_LATENCY_COLUMNS: list[Column[LatencyScore]] = [
    Column("evaluations", lambda one: one.budget, right=True),
    Column("islands", lambda one: one.islands, right=True),
    Column("lookahead", lambda one: one.lookahead, right=True),
    Column("target", lambda one: f"{one.target:.2f}", right=True),
    Column("reached", lambda one: percent_words(one.reached), right=True),
    Column("author calls", lambda one: _change(one.calls, one.calls_se, 1), right=True),
    Column("hours", lambda one: _change(one.hours, one.hours_se, 2), right=True),
]


def _latency(text: str) -> Latency:
    author, colon, judge = text.partition(":")
    try:
        found = Latency(author=float(author), judge=float(judge))
    except ValueError:
        colon = ""
    if not colon or not 0 <= found.author < math.inf or not 0 < found.judge < math.inf:
        raise UsageError(f"--latency {text!r}: give the seconds of a model's call and of an evaluation, e.g. 60:15")
    return found


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
