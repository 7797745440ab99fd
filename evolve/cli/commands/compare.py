"""`kbevolve compare`: several strategies at one budget, in one archive."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

from kbevolve.archive.formatting import CONFIRMED, as_times, counted, duration_words, interval_words, percent_words
from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.comparison import Average
from kbevolve.archive.report.comparison_figure import save_comparison
from kbevolve.archive.report.style import check_format
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.prices import read_prices
from kbevolve.configs.problem import Problem
from kbevolve.evolve.cli.options import (
    archive_option,
    figure_option,
    json_line_option,
    kernelbench_option,
    names_in,
    problem_option,
)
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import counts_words
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.progress import LiveProgress
from kbevolve.evolve.cli.render.tables import Column, explain, print_table, say
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.llm.client import build_language_model
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.runs.comparison import GENERATIONS, ComparedRun, compared_runs, strategy_rows, tracks
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.session import check_settings, open_run, run_session
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.strategies import STRATEGIES

#: Defaults of each run of a comparison: no run profits from another, and only the budget ends a run.
_COMPARED = {
    "budget.known_evaluations": True,
    "search.transfer": False,
    "search.patience": 0.0,
    "evaluation.baselines": False,
}


@click.command(
    epilog="Example: kbevolve compare --problem L1/softmax --strategies evolve,best-of-n,greedy --seeds 3 "
    "--max-evaluations 60"
)
@problem_option
@click.option(
    "--strategies",
    default="evolve,best-of-n,greedy",
    show_default=True,
    metavar="LIST",
    callback=lambda context, parameter, text: names_in(text, STRATEGIES, "strategy"),
    help=f"Some of {', '.join(STRATEGIES)}; the others are compared with the first.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each strategy.")
@figure_option("compare.png")
@json_line_option
@settings_options
@archive_option
@kernelbench_option
def compare(
    problem_name: str,
    strategies: list[str],
    seeds: int,
    output: Path,
    as_json: bool,
    choice: SettingsChoice,
    archive_path: Path,
    kernelbench_dir: Path | None,
) -> int:
    """Compare strategies at one budget of evaluations.

    All strategies have the same starting kernels, judge, cache of duplicates, contests and seeds. All runs are in one
    archive; finished runs are not repeated, so the same command continues after Ctrl-C. --seed is the first seed. A
    kernel counts as an evaluation of each run that creates it, also if another run had it judged.
    """
    check_format(output)
    defaults = _defaults(choice.overrides)
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = choice.load(defaults)
    budget = settings.budget.evaluations
    assert budget is not None, "it was among the overrides"
    console = Console()
    with Archive(archive_path) as archive:
        runs = compared_runs(archive, problem, devices.device.fingerprint, settings, strategies=strategies, seeds=seeds)
        for one in runs:
            if not one.over:
                check_settings(one.settings)
        say(console, _plan_words(runs, strategies, seeds, budget))
        compared: list[tuple[str, Run]] = []
        for one in runs:
            run = one.run if one.run and one.over else _make_run(console, archive, problem, devices, one)
            if run is None:
                say(console, "Interrupted; the same command continues.")
                return INTERRUPTED
            compared.append((one.settings.search.strategy, run))
        found = tracks(archive, sorted(compared, key=lambda pair: strategies.index(pair[0])))
    table = strategy_rows(found, budget=budget, prices=read_prices(settings.budget.prices))
    _print(console, table)
    save_comparison(found, output, problem=problem.name, device=devices.device.description, budget=budget)
    say(console, f"Wrote {output}.")
    if as_json:
        print_json_line(
            {
                "problem": problem.name,
                "device": devices.device.fingerprint,
                "evaluations": budget,
                "strategies": table,
                "figure": str(output),
            }
        )
    return 0


# ---- the runs ------------------------------------------------------------------------------------------------------


def _defaults(overrides: Mapping[str, Any]) -> dict[str, Any]:
    evaluations = overrides.get("budget.evaluations")
    if "search.strategy" in overrides:
        raise UsageError("--strategy is for one run; name the strategies with --strategies")
    if not isinstance(evaluations, int):
        raise UsageError("a comparison is at equal budget; give it: --max-evaluations 60")
    return {**_COMPARED, "search.generations": GENERATIONS * evaluations}


def _make_run(
    console: Console, archive: Archive, problem: Problem, devices: JudgeDevices, one: ComparedRun
) -> Run | None:
    """Make a run, or continue it; None when the user interrupts it."""
    run = one.run or open_run(archive, problem, devices.device, one.settings)
    context = RunContext(archive=archive, run=run, problem=problem, device=devices.device, settings=one.settings)
    live, show = None, lambda line: None
    if console.is_terminal:
        live = LiveProgress(context, devices, console, f"{problem.name}, {one.name}")
        show = partial(say, console)
    proposers = build_proposers(one.settings, cached(build_language_model, archive.replies(run)))
    with run_lock(archive, run), interruptible(), live or nullcontext():
        ending = run_session(context, devices, observer=live, say=show, proposers=proposers)
    if ending.reason is StopReason.INTERRUPTED:
        return None
    say(console, _run_words(archive, run, one))
    return run


# ---- words ---------------------------------------------------------------------------------------------------------


def _plan_words(runs: Sequence[ComparedRun], strategies: Sequence[str], seeds: int, budget: int) -> str:
    finished, started = sum(one.over for one in runs), sum(one.run is not None and not one.over for one in runs)
    each = f"{counted(len(strategies), 'strategy', 'strategies')}, {counted(seeds, 'seed')}, {budget} evaluations each"
    known = counts_words({"finished": finished, "started": started})
    return f"{each}: {counted(len(runs), 'run')}{', ' if known else ''}{known}."


def _run_words(archive: Archive, run: Run, one: ComparedRun) -> str:
    summary = archive.runs.summary(run)
    best = f"{as_times(summary.best_speedup)}" if summary.best_speedup else "nothing correct"
    confirmed = f" {CONFIRMED}" if summary.champion else ""
    wall = duration_words(archive.runs.wall_seconds(run.id))
    return f"{one.name}: {best}{confirmed}, {summary.evaluated} evaluations, {wall}, {run.id}"


def _print(console: Console, table: Mapping[str, Mapping[str, Any]]) -> None:
    first, *_ = table

    def at(count: int) -> Column[str]:
        return Column(f"at {count}", lambda name: _average_words(table[name]["at"][count]), right=True)

    columns: list[Column[str]] = [
        Column("strategy", lambda name: name),
        *map(at, table[first]["at"]),
        Column(f"against {first}", lambda name: _average_words(table[name]["against_first"]), right=True),
        Column("published", lambda name: _range_words(table[name]["published"], as_times), right=True),
        Column("valid", lambda name: percent_words(table[name]["valid"]), right=True),
        Column("duplicates", lambda name: percent_words(table[name]["duplicates"]), right=True, least_width=110),
        Column("evaluations", lambda name: _range_words(table[name]["evaluations"], str), right=True, least_width=120),
        Column("device", lambda name: duration_words(table[name]["device_seconds"]), right=True, least_width=120),
    ]
    if any(row["tokens"] for row in table.values()):
        columns += [
            Column("tokens", lambda name: f"{table[name]['tokens']:,}", right=True),
            Column("dollars", lambda name: _dollar_words(table[name]["dollars"]), right=True),
        ]
    print_table(console, columns, table)
    explain(
        console,
        "at N: lower end of the 95 % interval of the best kernel's speedup over eager after N evaluations, starting "
        "kernels included; the mean over seeds, with its 95 % interval from three seeds on. Published: speedups of "
        "the final kernels, measured again.",
    )


def _range_words(numbers: Sequence[float | None], words: Callable[[float], str]) -> str:
    known = [number for number in numbers if number]
    if not known:
        return "–"
    low, high = words(min(known)), words(max(known))
    return low if low == high else f"{low} to {high}"


def _dollar_words(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"${dollars:.2f}"


def _average_words(one: Average | None) -> str:
    if one is None:
        return "–"
    if one.low is None or one.high is None:
        return as_times(one.mean)
    return f"{as_times(one.mean)} {interval_words(one.low, one.high)}"
