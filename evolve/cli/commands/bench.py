"""`kbevolve bench`: score a suite of problems, searched with one budget each, or kernels that others wrote."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kbevolve.archive.formatting import counted, verdict_words
from kbevolve.archive.records import Run, StopReason
from kbevolve.archive.report.bench_figures import save_bench_figures
from kbevolve.archive.report.scores import ProblemResult, scores
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, ProposerError, UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.configs.suites import BUILTIN, SuiteProblem, chosen, suite_problems
from kbevolve.evolve.cli.options import FOLDER, archive_option, json_line_option, kernelbench_option
from kbevolve.evolve.cli.render.bench import as_csv, as_markdown, print_problems, print_scores, result_words
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.progress import LiveProgress
from kbevolve.evolve.cli.render.tables import note, say
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.llm.client import build_language_model
from kbevolve.evolve.llm.replies import cached
from kbevolve.evolve.proposers.factory import build_proposers, give_up
from kbevolve.evolve.runs.bench import FileBench, SearchBench
from kbevolve.evolve.runs.comparison import ComparedRun, known_runs
from kbevolve.evolve.runs.evaluators import SEARCH_JUDGE, JudgeDevices, Judges
from kbevolve.evolve.runs.kernel_files import KernelFiles, file_name, find_kernel_files
from kbevolve.evolve.runs.lock import run_lock
from kbevolve.evolve.runs.session import check_new_run, open_run, run_session
from kbevolve.evolve.state.context import RunContext

#: Defaults of each run of a benchmark: its result does not depend on the problems before it.
_DEFAULTS = {"budget.known_evaluations": True, "search.transfer": False}


@click.command(
    short_help="Score a suite of problems: fast_p and speedups.",
    epilog="Example: kbevolve bench --suite kernelbench --level 1 --limit 20 --max-evaluations 30",
)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--suite", default=BUILTIN, show_default=True, metavar="NAME", help="builtin, kernelbench, or a folder of problems."
)
@click.option("--level", "levels", multiple=True, help="Only this level; may be given again.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Only so many problems, from the first one on.")
@click.option(
    "--from",
    "kernels",
    type=FOLDER,
    metavar="DIR",
    help="Search nothing: judge the kernels in DIR, e.g. KernelBench's runs/NAME.",
)
@click.option("--p", "thresholds", type=float, multiple=True, help="Another p of fast_p, e.g. 1.5; may be given again.")
@click.option(
    "-o", "--output", type=FOLDER, default=Path("bench"), show_default=True, metavar="DIR",
    help="Where tables, figures and the best kernels go.",
)  # fmt: skip
@click.option("--fresh", is_flag=True, help="Analyse problems again that could not be judged.")
@json_line_option
@settings_options
@archive_option
@kernelbench_option
def bench(
    patterns: tuple[str, ...],
    suite: str,
    levels: tuple[str, ...],
    limit: int | None,
    kernels: Path | None,
    thresholds: tuple[float, ...],
    output: Path,
    fresh: bool,
    as_json: bool,
    choice: SettingsChoice,
    archive_path: Path,
    kernelbench_dir: Path | None,
) -> int:
    """Score a suite of problems: fast_p, correctness, speedups over eager and over the best baseline.

    Each problem is searched with the same strategy and budget, e.g. --max-evaluations 30 or --max-wall 10m. With --from
    the kernels of others are judged instead. PATTERN chooses problems: a number (19, 1/19, 1/1-20), a name (ReLU,
    L1/matmul) or a pattern ('*conv*').

    What is in the archive is not done again, so the same command continues after Ctrl-C. A problem that fails does not
    end the benchmark. With --json the last line is {"levels": {"1": {"n", "correct", "fast_1", "geomean_eager", …}},
    "all": …, "without_flawed": …, "problems": […]}.
    """
    words = [word for pattern in patterns for word in pattern.split(",") if word]
    problems = chosen(
        suite_problems(suite, kernelbench=kernelbench_dir), patterns=words, levels=levels, limit=limit or 0
    )
    files = find_kernel_files(kernels, problems) if kernels else None
    settings, devices = choice.load(_DEFAULTS)
    if files is None:
        _check(settings)
    console = Console()
    with Archive(archive_path) as archive:
        shared: dict[str, Any] = {"archive": archive, "devices": devices, "settings": settings, "fresh": fresh}
        made: SearchBench | FileBench
        if files:
            problems = _with_kernels(console, problems, files)
            made = FileBench(**shared, files=files.files, report=_reporter(console, kernels or Path()))
        else:
            ids = {one.problem.id for one in problems if one.problem}
            made = SearchBench(
                **shared,
                judge=SEARCH_JUDGE,
                search=partial(_search, console, archive, devices),
                known=known_runs(archive, devices.device.fingerprint, ids),
            )
        results, interrupted = _work(console, made, problems)
        found = scores(results, thresholds)
        if results:
            details = _details(suite, devices, settings, kernels)
            _write(archive, output, problems, results, found, details)
            print_problems(console, results)
            print_scores(console, found)
            searched = any(one.run and one.kernel for one in results)
            say(console, f"Wrote {output}: scores.md, problems.csv, figures{', kernels' if searched else ''}.")
        left = len(problems) - len(results)
        if interrupted:
            say(console, f"Interrupted with {counted(left, 'problem')} left; the same command continues.", "yellow")
        if as_json:
            facts = {"suite": suite, "device": devices.device.fingerprint, "precision": settings.evaluation.precision}
            print_json_line({**facts, "left": left, **found, "problems": results, "output": output})
    return INTERRUPTED if interrupted else 0


# ---- the work ------------------------------------------------------------------------------------------------------


def _check(settings: Settings) -> None:
    """Check that runs are possible, before the first one starts."""
    proposers = build_proposers(settings)
    try:
        check_new_run(settings, proposers)
    finally:
        give_up(proposers)


def _with_kernels(console: Console, problems: Sequence[SuiteProblem], files: KernelFiles) -> list[SuiteProblem]:
    """The problems of the levels that have kernels; says what is missing."""
    levels = {one.level for one in problems if one.name in files.files}
    kept = [one for one in problems if one.level in levels]
    count, without = sum(map(len, files.files.values())), len(kept) - len(files.files)
    say(console, f"{counted(count, 'kernel')} for {counted(len(files.files), 'problem')}.")
    if without:
        say(
            console,
            f"Without a kernel, and so not correct: {counted(without, 'problem')} of these levels.",
            "yellow",
        )
    if files.others:
        others = ", ".join(path.name for path in files.others[:3])
        say(console, f"For no problem of the suite: {counted(len(files.others), 'file')}, e.g. {others}", "yellow")
    return kept


def _reporter(console: Console, folder: Path) -> Callable[[str, Any], None]:
    """Shows the verdict of each file."""

    def report(file: str, found: Any) -> None:
        note(console, f"  {Path(file).relative_to(folder)}: {verdict_words(found.verdict)}")

    return report


def _work(
    console: Console, made: SearchBench | FileBench, problems: Sequence[SuiteProblem]
) -> tuple[list[ProblemResult], bool]:
    """The results of all problems, and whether the user interrupted the work: then of those that have one."""
    missing = {one.name for one in problems if made.is_missing(one)}
    finished = len(problems) - len(missing)
    say(console, f"{counted(len(problems), 'problem')}{f', {finished} of them finished' if finished else ''}.")
    results: list[ProblemResult] = []
    interrupted = False
    with interruptible():
        try:
            for number, one in enumerate(problems, start=1):
                if one.name not in missing:
                    results.append(made.result(one))
                elif not interrupted:
                    try:
                        reason = _failure_of(made, one)
                    except KeyboardInterrupt:
                        interrupted = True
                        continue
                    results.append(made.result(one, reason))
                    say(console, f"[{number}/{len(problems)}] {one.name}: {result_words(results[-1])}")
        finally:
            made.close()
    return results, interrupted


def _failure_of(made: SearchBench | FileBench, one: SuiteProblem) -> str:
    """Do what is missing for a problem; why that failed, "" when it did not."""
    try:
        made.work(one)
    except (ProposerError, ArchiveError):
        raise  # no other problem would do better
    except Exception as error:
        made.close()  # judges that failed may be broken
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _search(
    console: Console, archive: Archive, devices: JudgeDevices, problem: Problem, one: ComparedRun, judges: Judges
) -> tuple[Run, StopReason]:
    """Make the run of a problem, or continue it."""
    run = one.run or open_run(archive, problem, devices.device, one.settings)
    context = RunContext(archive=archive, run=run, problem=problem, device=devices.device, settings=one.settings)
    live = LiveProgress(context, devices, console) if console.is_terminal else None
    proposers = build_proposers(one.settings, cached(build_language_model, archive.replies(run)))
    with run_lock(archive, run), live or nullcontext():
        ending = run_session(context, devices, observer=live, shared=judges, proposers=proposers)
    return run, ending.reason


# ---- what is written -----------------------------------------------------------------------------------------------


def _details(suite: str, devices: JudgeDevices, settings: Settings, kernels: Path | None) -> str:
    """One line: suite, device, and how the kernels were made."""
    limits = {name: value for name, value in settings.budget.model_dump(exclude_none=True).items() if value is not True}
    budget = ", ".join(f"{value:g} {name.replace('_', ' ')}" for name, value in limits.items() if name != "prices")
    searched = f"{settings.search.strategy}, {budget or f'{settings.search.generations} generations'} a problem"
    source = f"kernels of {kernels}" if kernels else searched
    name = suite if suite in (BUILTIN, "kernelbench") else Path(suite).resolve().name
    return f"{name}, {devices.description}, {settings.evaluation.precision}, {source}"


def _write(
    archive: Archive,
    output: Path,
    problems: Sequence[SuiteProblem],
    results: Sequence[ProblemResult],
    found: Mapping[str, Any],
    details: str,
) -> None:
    """Tables, figures, and the best kernel of each problem that was searched, in KernelBench's names."""
    entries = {one.name: one for one in problems}
    try:
        output.mkdir(parents=True, exist_ok=True)
        title = f"Benchmark of {counted(len(results), 'problem')}"
        (output / "scores.md").write_text(as_markdown(title, details, found, results), "utf-8")
        (output / "problems.csv").write_text(as_csv(results), "utf-8")
        for one in results:
            if one.run and one.kernel:
                (output / "kernels").mkdir(exist_ok=True)
                source = archive.kernels.get(one.kernel).source
                (output / "kernels" / file_name(entries[one.problem])).write_text(source, "utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}; name another folder with -o DIR") from None
    save_bench_figures(results, output, details=details)
