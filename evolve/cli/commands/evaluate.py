"""`kbevolve evaluate`: judge one kernel file, or a folder of them."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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
from kbevolve.configs.settings import EvaluationSettings, parse_override
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.options import (
    check_devices,
    device_option,
    devices_option,
    force_option,
    kernelbench_option,
    library_option,
    problem_option,
    workers_option,
)
from kbevolve.evolve.cli.render.batch import BatchProgress, print_batch_summary, summary_of
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.kernel import print_fields, standing_fields
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.proposers.seeds.files import read_kernel
from kbevolve.evolve.runs.batch import Batch, BatchSession, read_batch
from kbevolve.evolve.runs.evaluators import Judges, open_judges
from kbevolve.evolve.runs.settings import settings_and_devices


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
    help="With --batch: a line of JSON for each kernel goes here; kernels that have one are not judged again.",
)
@problem_option
@device_option
@devices_option
@workers_option
@click.option("--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16"]), help="What the task asks for.")
@library_option
@force_option
@click.option(
    "--baselines/--no-baselines",
    default=False,
    help="Compare with torch.compile and eager in a CUDA graph, too; the first time that takes minutes.",
)
@click.option("--preset", help="Settings to start from: cpu, default, smoke.")
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), help="A YAML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. evaluation.rounds=20.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in one line, last on standard output.")
@kernelbench_option
def evaluate(
    file: Path | None,
    batch: Path | None,
    out: Path | None,
    problem_name: str,
    device: str | None,
    devices: list[str] | None,
    workers: str | None,
    precision: str | None,
    allow_library: str | None,
    force: bool | None,
    baselines: bool,
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    kernelbench_dir: Path | None,
) -> int:
    """Judge one kernel file: is it correct, and how fast is it? Or, with --batch, a folder of them.

    FILE defines class ModelNew. The exit code is 0 whatever the verdict is, and 1 when nothing could be judged. With
    --json the last line is an object with verdict, message, tags, precision_class, speedup, speedup_low and more.

    A batch needs no archive and no network. Stopped anywhere, it goes on when the same command is given again;
    `kbevolve tell RESULTS` brings what it found into an archive.
    """
    _check_task(file, batch, out)
    check_devices(device, devices, workers)
    kernel = read_kernel(file) if file else None
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    overrides: dict[str, Any] = dict(parse_override(text) for text in assignments)
    short = {
        "device": device,
        "work.devices": devices,
        "work.workers": workers,
        "evaluation.precision": precision,
        "evaluation.allow_library": allow_library,
        "evaluation.force": force,
        "evaluation.baselines": baselines,
    }
    overrides |= {name: value for name, value in short.items() if value is not None}
    settings, judge_devices = settings_and_devices(preset=preset, config=config, overrides=overrides)
    if batch is not None and out is not None:
        found = read_batch(batch, problem=problem)
        with interruptible(), ResultsFile(out) as findings:
            session = BatchSession(problem, judge_devices.device, settings.evaluation, findings)
            return _judge_batch(session, found, partial(open_judges, judge_devices, settings), baselines, as_json)
    assert kernel is not None, "it was checked: either a file or a batch"
    with open_judges(judge_devices, settings) as judges:
        if baselines:
            _measure_baselines(judges, problem, settings.evaluation)
        evaluation = judges.evaluate(problem, kernel)
        # A file that is refused unread is not worth running the reference for.
        flags = judges.card(problem).flags if baselines or "prepare" in evaluation.execution.phases else {}
    # Only now that every process of the kernel is dead: nothing that it prints can come behind.
    if as_json:
        # Lists of raw blocks stay in the archive of a run; here they would bury the verdict.
        facts = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        print_json_line(facts | {"problem_name": problem.name, "card_flags": flags})
    else:
        _print(evaluation, kernel, problem, flags, judge_devices.device)
    return 0


def _check_task(file: Path | None, batch: Path | None, out: Path | None) -> None:
    if file and batch:
        raise UsageError(f"both FILE ({file}) and --batch ({batch}): give the one file, or the folder")
    if not file and not batch:
        raise UsageError("nothing to judge: name a FILE, or a folder of them with --batch DIR --out results.jsonl")
    if batch and not out:
        raise UsageError(f"--batch {batch} needs a file for what is found: --out results.jsonl")
    if out and not batch:
        raise UsageError(
            f"--out {out} is for --batch DIR; a single FILE is told on standard output, by --json for scripts"
        )


def _judge_batch(
    session: BatchSession, batch: Batch, judges_for: Callable[[], Judges], baselines: bool, as_json: bool
) -> int:
    """Judge what has no line yet, and say what came of it; the exit code."""
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(Text(printable(line), style="dim"), soft_wrap=True)

    for line in session.notes(batch):
        say(line)
    missing, interrupted = session.missing(batch.kernels), False
    with BatchProgress(len(missing), console) as progress:
        if missing:  # else no process is started: a batch that is through is told at once
            try:
                with judges_for() as judges:
                    if baselines:
                        _measure_baselines(judges, session.problem, session.settings)
                    session.judge(judges, missing, width=judges.width, report=progress)
            except KeyboardInterrupt:
                interrupted = True
    summary = summary_of(batch, session.findings(batch.kernels), progress, session.path)
    if as_json:
        print_json_line(summary)
    else:
        print_batch_summary(Console(), summary)
    if interrupted:
        say("Interrupted; the same command goes on from here.")
    return INTERRUPTED if interrupted else 0


def _measure_baselines(judges: Judges, problem: Problem, settings: EvaluationSettings) -> None:
    """Measure what evaluations compare with from now on, unless kernels of the problem are not judged at all."""
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
    fields |= standing_fields(evaluation)
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
