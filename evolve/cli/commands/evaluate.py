"""`kbevolve evaluate`: judge one kernel file, or a folder of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.batch_results import ResultsFile
from kbevolve.archive.formatting import speedup_words, time_words, verdict_words
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.options import json_line_option, kernelbench_option, problem_option
from kbevolve.evolve.cli.render.batch import BatchProgress, print_batch_summary, summary_of
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.kernel import comparison_fields, print_fields
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.cli.settings_options import SettingsChoice, judge_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.proposers.seeds.files import read_kernel
from kbevolve.evolve.runs.batch import Batch, BatchSession, read_batch
from kbevolve.evolve.runs.evaluators import Judges, open_judges


@click.command(epilog="Example: kbevolve evaluate kernel.py --problem L1/matmul --json")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--batch",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Judge every *.py in this folder instead of FILE; needs --out.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="RESULTS",
    help="With --batch: one line of JSON for each kernel goes there; kernels that have a line are not judged again.",
)
@problem_option
@judge_options
@click.option(
    "--baselines/--no-baselines",
    default=False,
    help="Compare with torch.compile, and with eager in a CUDA graph, too; the first time that takes minutes.",
)
@json_line_option
@kernelbench_option
def evaluate(
    file: Path | None,
    batch: Path | None,
    out: Path | None,
    problem_name: str,
    choice: SettingsChoice,
    baselines: bool,
    as_json: bool,
    kernelbench_dir: Path | None,
) -> int:
    """Judge one kernel file: is it correct, and how fast is it? Or, with --batch, a folder of files.

    FILE defines class ModelNew. The exit code is 0 for every verdict, and 1 when nothing could be judged. With --json
    the last line is an object with verdict, message, tags, precision_class, speedup, speedup_low and more.

    A batch needs no archive and no network. The same command continues a batch that was stopped; `kbevolve import
    RESULTS` adds the verdicts to an archive.
    """
    _check_task(file, batch, out)
    kernel = read_kernel(file) if file else None
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = replace(choice, overrides={**choice.overrides, "evaluation.baselines": baselines}).load()
    judges_for = partial(open_judges, devices, settings)
    if batch is not None and out is not None:
        found = read_batch(batch, problem=problem)
        with interruptible(), ResultsFile(out) as results:
            session = BatchSession(problem=problem, device=devices.device, settings=settings.evaluation, out=results)
            return _judge_batch(session, found, judges_for, as_json)
    assert kernel is not None, "either a file or a batch"
    with judges_for() as judges:
        if baselines:
            _measure_baselines(judges, problem, settings.evaluation)
        evaluation = judges.evaluate(problem, kernel)
        # If the file was refused unread, the reference need not run.
        flags = judges.card(problem).flags if baselines or "prepare" in evaluation.execution.phases else {}
    # Every process of the kernel has ended: it can print nothing after this.
    if as_json:
        # Without the lists of raw blocks, which would hide the verdict.
        facts = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        print_json_line(facts | {"problem_name": problem.name, "card_flags": flags})
    else:
        _print(evaluation, kernel, problem, flags, devices.device)
    return 0


def _check_task(file: Path | None, batch: Path | None, out: Path | None) -> None:
    if file and batch:
        raise UsageError(f"both FILE ({file}) and --batch ({batch}): give the one file, or the folder")
    if not file and not batch:
        raise UsageError("nothing to judge: name a FILE, or a folder with --batch DIR --out results.jsonl")
    if batch and not out:
        raise UsageError(f"--batch {batch} needs a file for the results: --out results.jsonl")
    if out and not batch:
        raise UsageError(f"--out {out} is for --batch DIR; the verdict of one FILE is printed, with --json for scripts")


def _judge_batch(session: BatchSession, batch: Batch, judges_for: Callable[[], Judges], as_json: bool) -> int:
    """Judge the kernels without a line, and print a summary; the exit code."""
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(Text(printable(line), style="dim"), soft_wrap=True)

    for line in session.notes(batch):
        say(line)
    missing, interrupted = session.missing(batch.kernels), False
    with BatchProgress(len(missing), console) as progress:
        if missing:  # else no process is started
            try:
                with judges_for() as judges:
                    if session.settings.baselines:
                        _measure_baselines(judges, session.problem, session.settings)
                    session.judge(judges, missing, width=judges.width, report=progress)
            except KeyboardInterrupt:
                interrupted = True
    summary = summary_of(batch, session.results(batch.kernels), progress, session.out.path)
    if as_json:
        print_json_line(summary)
    else:
        print_batch_summary(Console(), summary)
    if interrupted:
        say("Interrupted; the same command continues the batch.")
    return INTERRUPTED if interrupted else 0


def _measure_baselines(judges: Judges, problem: Problem, settings: EvaluationSettings) -> None:
    """Measure the baselines of the next evaluations, unless kernels of the problem are not judged at all."""
    if settings.force or not judges.card(problem).degenerate:
        judges.baselines(problem)


def _print(
    evaluation: Evaluation,
    kernel: Kernel,
    problem: Problem,
    flags: Mapping[str, str],
    device: Device,
) -> None:
    console = Console()
    fields: dict[str, str | Text] = {
        "verdict": Text(verdict_words(evaluation.verdict), style=f"bold {VERDICT_STYLE[evaluation.verdict]}"),
        "kernel": f"{kernel.id}, {kernel.backend.value}",
        "problem": f"{problem.name}, {evaluation.precision}",
        "device": device.description,
    }
    if evaluation.message:
        fields["message"] = evaluation.message
    fields |= {flag: f"{reason} (the problem)" for flag, reason in flags.items()}
    accuracy = evaluation.accuracy
    if accuracy.error is not None:
        fields["error"] = (
            f"{accuracy.error:.2g} against fp64, {accuracy.precision_class or 'no rounding error'}; "
            f"the reference's own: {accuracy.reference_error:.2g}"
        )
        if evaluation.accuracy.worst_tile is not None:
            fields["worst tile"] = f"{evaluation.accuracy.worst_tile:.2g}"
        fields["allclose"] = f"{'yes' if evaluation.accuracy.allclose else 'no'} (KernelBench's test)"
    if evaluation.verdict is Verdict.CORRECT:
        fields["time"] = (
            f"{time_words(evaluation.timing.time_ms)}, reference {time_words(evaluation.timing.reference_ms)}"
        )
        fields["speedup"] = Text(f"{speedup_words(evaluation)} over eager", style="bold")
    fields |= comparison_fields(evaluation)
    if evaluation.tags:
        fields["tags"] = ", ".join(evaluation.tags)
    if evaluation.execution.sandbox:
        fields["sandbox"] = evaluation.execution.sandbox
    spent = ", ".join(
        f"{name} {seconds:.1f}" for name, seconds in evaluation.execution.phases.items() if seconds >= 0.05
    )
    fields["seconds"] = f"{evaluation.execution.seconds:.1f} in all" + (f": {spent}" if spent else "")
    print_fields(console, fields)
    if evaluation.profile is not None:
        print_profile(console, evaluation.profile)
