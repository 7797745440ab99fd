"""`kbevolve compare`: several strategies at one budget, in one archive."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import CONFIRMED, as_times, duration_words, interval_words
from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.comparison import Average
from kbevolve.archive.report.comparison_figure import save_comparison
from kbevolve.archive.report.style import FORMATS, check_format
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError, nearest
from kbevolve.configs.prices import read_prices
from kbevolve.configs.problem import Problem
from kbevolve.evolve.cli.options import archive_option, kernelbench_option, problem_option
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.progress import Header, LiveProgress
from kbevolve.evolve.cli.render.tables import Column, print_table
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.llm.client import build_language_model
from kbevolve.evolve.llm.reply_cache import cached
from kbevolve.evolve.proposers.factory import build_proposers, give_up, proposer_words
from kbevolve.evolve.runs.comparison import GENERATIONS, ComparedRun, StrategyRow, compared_runs, strategy_rows, tracks
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.session import open_run, run_session
from kbevolve.evolve.runs.starts import given_starts
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.strategies import STRATEGIES, check_strategy

#: Defaults of each run of a comparison: no run profits from another, and only the budget ends a run.
_COMPARED = {
    "budget.known_evaluations": True,
    "search.transfer": False,
    "search.patience": 0.0,
    "evaluation.baselines": False,
}


def _names(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in STRATEGIES:
            raise UsageError(f"no strategy {name!r}. {nearest(name, STRATEGIES)}")
    if not names:
        raise UsageError(f"--strategies names none; give some of {', '.join(STRATEGIES)}")
    return names


@click.command(
    epilog="Example: kbevolve compare --problem L1/softmax --strategies evolve,best-of-n,greedy --seeds 3 "
    "--max-evaluations 60",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@problem_option
@click.option(
    "--strategies",
    default="evolve,best-of-n,greedy",
    show_default=True,
    metavar="LIST",
    callback=_names,
    help=f"Some of {', '.join(STRATEGIES)}; the others are compared with the first.",
)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each strategy.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("compare.png"),
    show_default=True,
    metavar="FILE",
    help=f"The figure: {', '.join(FORMATS)}.",
)
@click.option("--json", "as_object", is_flag=True, help="End with one JSON object for scripts.")
@settings_options
@archive_option
@kernelbench_option
def compare(
    problem_name: str,
    strategies: list[str],
    seeds: int,
    output: Path,
    as_object: bool,
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
    given_starts(settings)
    budget = settings.budget.evaluations
    assert budget is not None, "it was among the overrides"
    console = Console()
    with Archive(archive_path) as archive:
        runs = compared_runs(archive, problem, devices.device.fingerprint, settings, strategies=strategies, seeds=seeds)
        for one in runs:
            if not one.over:
                _check(one)
        _say(console, _plan_words(runs, strategies, seeds, budget))
        compared: list[tuple[str, Run]] = []
        for one in runs:
            run = one.run if one.run and one.over else _make_run(console, archive, problem, devices, one)
            if run is None:
                _say(console, "Interrupted; the same command continues.")
                return INTERRUPTED
            compared.append((one.strategy, run))
        found = tracks(archive, sorted(compared, key=lambda pair: strategies.index(pair[0])))
    table = strategy_rows(found, budget=budget, prices=read_prices(settings.budget.prices))
    _print(console, table)
    save_comparison(found, output, problem=problem.name, device=devices.device.description, budget=budget)
    _say(console, f"Wrote {output}.")
    if as_object:
        print_json_line(
            {
                "problem": problem.name,
                "device": devices.device.fingerprint,
                "evaluations": budget,
                "strategies": {row.strategy: row.as_json() for row in table},
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


def _check(one: ComparedRun) -> None:
    """Check that a run is possible, before the first run starts."""
    proposers = build_proposers(one.settings)
    try:
        check_strategy(one.settings, proposers)
    finally:
        give_up(proposers)
    Budget.of(one.settings).check(one.settings)


def _make_run(
    console: Console, archive: Archive, problem: Problem, devices: JudgeDevices, one: ComparedRun
) -> Run | None:
    """Make a run, or continue it; None when the user interrupts it."""
    run = one.run or open_run(archive, problem, devices.device, one.settings)
    context = RunContext(archive=archive, run=run, problem=problem, device=devices.device, settings=one.settings)
    header = Header(
        problem=f"{problem.name}, {one.strategy}, seed {one.seed}",
        device=devices.description,
        proposer=proposer_words(one.settings),
        generations=one.settings.search.generations,
        reference=context.reference,
    )
    live = LiveProgress(header, console) if console.is_terminal else None

    def say(line: str) -> None:
        if live is not None:
            _say(console, line)

    proposers = build_proposers(one.settings, cached(build_language_model, archive.replies(run)))
    with run_lock(archive, run), interruptible(), live or nullcontext():
        ending = run_session(context, devices, observer=live, say=say, proposers=proposers)
    if ending.reason is StopReason.INTERRUPTED:
        return None
    _say(console, _run_words(archive, run, one))
    return run


# ---- words ---------------------------------------------------------------------------------------------------------


def _plan_words(runs: Sequence[ComparedRun], strategies: Sequence[str], seeds: int, budget: int) -> str:
    finished, started = sum(one.over for one in runs), sum(one.run is not None and not one.over for one in runs)
    words = f"{_counted(len(strategies), 'strategy', 'strategies')}, {_counted(seeds, 'seed', 'seeds')}, {budget} "
    words += f"evaluations each: {_counted(len(runs), 'run', 'runs')}"
    parts = [f"{finished} finished"] if finished else []
    parts += [f"{started} started"] if started else []
    return f"{words}, {', '.join(parts)}." if parts else f"{words}."


def _run_words(archive: Archive, run: Run, one: ComparedRun) -> str:
    summary = archive.runs.summary(run)
    best = f"{as_times(summary.best_speedup)}" if summary.best_speedup else "nothing correct"
    confirmed = f" {CONFIRMED}" if summary.champion else ""
    wall = duration_words(archive.runs.wall_seconds(run.id))
    return f"{one.strategy}, seed {one.seed}: {best}{confirmed}, {summary.evaluated} evaluations, {wall}, {run.id}"


def _print(console: Console, table: Sequence[StrategyRow]) -> None:
    counts = list(table[0].at)
    asked = any(row.tokens for row in table)
    columns = [
        Column(name="strategy"),
        *(Column(name=f"at {count}", right=True) for count in counts),
        Column(name=f"against {table[0].strategy}", right=True),
        Column(name="published", right=True),
        Column(name="valid", right=True),
        Column(name="duplicates", right=True, least_width=110),
        Column(name="evaluations", right=True, least_width=120),
        Column(name="device", right=True, least_width=120),
        *([Column(name="tokens", right=True), Column(name="dollars", right=True)] if asked else []),
    ]
    lines = [
        [
            row.strategy,
            *(_average_words(row.at[count]) for count in counts),
            _average_words(row.against_first),
            _published_words(row),
            _percent(row.valid),
            _percent(row.duplicates),
            _range_words([one.evaluations for one in row.tracks]),
            duration_words(sum(one.device_seconds for one in row.tracks)),
            *([f"{row.tokens:,}", "unknown" if row.dollars is None else f"${row.dollars:.2f}"] if asked else []),
        ]
        for row in table
    ]
    print_table(console, columns, lines)
    _say(
        console,
        "at N: lower end of the 95 % interval of the best kernel's speedup over eager after N evaluations, starting "
        "kernels included; the mean over seeds, with its 95 % interval from three seeds on. Published: speedups of "
        "the final kernels, measured again.",
    )


def _published_words(row: StrategyRow) -> str:
    published = [one.published for one in row.tracks if one.published]
    if not published:
        return "–"
    low, high = as_times(min(published)), as_times(max(published))
    return low if low == high else f"{low} to {high}"


def _range_words(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _average_words(one: Average | None) -> str:
    if one is None:
        return "–"
    if one.low is None or one.high is None:
        return as_times(one.mean)
    return f"{as_times(one.mean)} {interval_words(one.low, one.high)}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True)
