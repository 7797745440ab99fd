"""`kbevolve bench`: score a suite of problems, searched with one budget each, or kernels that others wrote."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kbevolve.archive.formatting import counted, verdict_words
from kbevolve.archive.records import Evaluation
from kbevolve.archive.report.bench_figures import save_bench_figures
from kbevolve.archive.report.scores import ProblemResult, scores
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import Settings
from kbevolve.configs.suites import BUILTIN, SuiteProblem, chosen, suite_problems
from kbevolve.evaluators.recipe import RecipeVerdict
from kbevolve.evolve.cli.commands.bench_work import Lane, do_work, search_bench
from kbevolve.evolve.cli.options import FOLDER, archive_option, json_line_option, judge_option, kernelbench_option
from kbevolve.evolve.cli.render.bench import as_csv, as_markdown, print_problems, print_scores
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.recipe import print_recipe, recipe_markdown
from kbevolve.evolve.cli.render.tables import note, say
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED
from kbevolve.evolve.runs.bench import FileBench, SearchBench
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.kernel_files import KernelFiles, file_name, find_kernel_files
from kbevolve.evolve.runs.recipe_bench import LABEL, RecipeBench, recipe_device, recipe_facts, recipe_scores
from kbevolve.evolve.runs.session import check_settings

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
    "--draw",
    type=int,
    default=None,
    metavar="SEED",
    help="With --limit: draw the problems by this seed, as large a share of each level as of the others.",
)
@click.option(
    "--from",
    "kernels",
    type=FOLDER,
    metavar="DIR",
    help="Search nothing: judge the kernels in DIR, e.g. KernelBench's runs/NAME.",
)
@judge_option
@click.option("--p", "thresholds", type=float, multiple=True, help="Another p of fast_p, e.g. 1.5; may be given again.")
@click.option(
    "--pass-at",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="K",
    help="With --from: the chance that one of K kernels is correct; may be given again.",
)
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
    draw: int | None,
    kernels: Path | None,
    judge: str,
    thresholds: tuple[float, ...],
    pass_at: tuple[int, ...],
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

    --judge kernelbench judges the kernels of --from by KernelBench's own recipe, for comparison; no archive gets that.

    What is in the archive is not done again, so the same command continues after Ctrl-C. A problem that fails does not
    end the benchmark. With several --devices of one model, each works on a problem of its own.

    With --json the result is {"levels": {"1": {"n", "correct", "fast_1", "geomean_eager", …}}, "all": …,
    "without_flawed": …, "problems": […]}.
    """
    if not kernels and (judge == "kernelbench" or pass_at):
        option = "--pass-at" if pass_at else "--judge kernelbench"
        raise UsageError(f"{option} is for kernels that others wrote; name their folder with --from DIR")
    if draw is not None and limit is None:
        raise UsageError("--draw is for a part of the problems; say how many with --limit N")
    words = [word for pattern in patterns for word in pattern.split(",") if word]
    problems = chosen(
        suite_problems(suite, kernelbench=kernelbench_dir), patterns=words, levels=levels, limit=limit or 0, draw=draw
    )
    files = find_kernel_files(kernels, problems) if kernels else None
    settings, devices = choice.load(_DEFAULTS)
    if files is None:
        check_settings(settings)
    console = Console()
    facts = {"suite": suite, "device": devices.device.fingerprint, "precision": settings.evaluation.precision}
    details = _details(suite, devices, settings, kernels)
    if kernels and files:
        problems = _with_kernels(console, problems, files)
    if kernels and files and judge == "kernelbench":
        facts = {"judge": judge, "note": LABEL, **facts}
        recipe = _recipe(devices, settings, files, output, _reporter(console, kernels))
        results, interrupted = do_work(console, recipe, problems)
        found = recipe_scores(results, thresholds, pass_at)
        if results:
            title = f"{counted(len(results), 'problem')} by KernelBench's recipe"
            _write_text(output, "recipe.md", recipe_markdown(title, details, found, results))
            print_recipe(console, results, found)
            say(console, f"Wrote {output}: recipe.md, recipe.jsonl.")
        found["problems"] = list(map(recipe_facts, results))
    else:
        with Archive(archive_path) as archive:
            warn = partial(say, console, style="yellow")
            made: SearchBench | FileBench
            lane = None
            if kernels and files:
                shared: dict[str, Any] = {"archive": archive, "devices": devices, "settings": settings, "fresh": fresh}
                made = FileBench(**shared, say=warn, files=files.files, report=_reporter(console, kernels))
            else:
                made = search_bench(archive, devices, settings, problems, fresh=fresh, say=warn, console=console)
                lane = Lane(archive=archive_path, settings=settings, fresh=fresh, problems=tuple(problems))
            results, interrupted = do_work(console, made, problems, lane)
            found = scores(results, thresholds, pass_at)
            if results:
                _write(archive, output, problems, results, found, details)
                print_problems(console, results)
                print_scores(console, found)
                searched = any(one.run and one.kernel for one in results)
                say(console, f"Wrote {output}: scores.md, problems.csv, figures{', kernels' if searched else ''}.")
        found["problems"] = results
    left = len(problems) - len(results)
    if interrupted:
        say(console, f"Interrupted with {counted(left, 'problem')} left; the same command continues.", "yellow")
    if as_json:
        print_json_line({**facts, "left": left, **found, "output": output})
    return INTERRUPTED if interrupted else 0


# ---- the work ------------------------------------------------------------------------------------------------------


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

    def report(file: str, found: Evaluation | RecipeVerdict) -> None:
        words = found.outcome if isinstance(found, RecipeVerdict) else verdict_words(found.verdict)
        note(console, f"  {Path(file).relative_to(folder)}: {words}")

    return report


def _recipe(
    devices: JudgeDevices, settings: Settings, files: KernelFiles, output: Path, report: Callable[[str, Any], None]
) -> RecipeBench:
    """KernelBench's recipe on the first device."""
    device, verdicts = recipe_device(devices, settings), output / "recipe.jsonl"
    return RecipeBench(device=device, settings=settings, files=files.files, verdicts=verdicts, report=report)


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
    title = f"Benchmark of {counted(len(results), 'problem')}"
    _write_text(output, "scores.md", as_markdown(title, details, found, results))
    _write_text(output, "problems.csv", as_csv(results))
    for one in results:
        if one.run and one.kernel:
            source = archive.kernels.get(one.kernel).source
            _write_text(output / "kernels", file_name(entries[one.problem]), source)
    save_bench_figures(results, output, details=details)


def _write_text(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name another folder with -o DIR") from None
