"""`kbevolve evaluate`: judge one kernel file, or a folder of them."""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import click

from kbevolve.archive.batch_results import ResultsFile
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.load import load_warning
from kbevolve.evaluators.recipe import Outcome, judge_by_recipe
from kbevolve.evolve.cli.commands.evaluate_variants import DRAWN, VariantTask, evaluate_samples, evaluate_shapes
from kbevolve.evolve.cli.options import FILE, json_line_option, judge_option, kernelbench_option, problem_option
from kbevolve.evolve.cli.render.batch import BatchProgress, print_batch_summary, summary_of
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.kernel import evaluation_fields
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.recipe import recipe_fields
from kbevolve.evolve.cli.render.tables import announce, note, print_fields
from kbevolve.evolve.cli.settings_options import SettingsChoice, judge_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.proposers.seeds.seeds import read_kernel
from kbevolve.evolve.runs.batch import BatchSession, read_batch
from kbevolve.evolve.runs.evaluators import Judges, open_judges
from kbevolve.evolve.runs.recipe_bench import LABEL, recipe_device


@click.command(epilog="Example: kbevolve evaluate kernel.py --problem L1/matmul --json")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--batch",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Judge every *.py in this folder instead of FILE; needs --out.",
)
@click.option(
    "--out",
    type=FILE,
    metavar="RESULTS",
    help="With --batch: one line of JSON for each kernel goes there; kernels that have a line are not judged again.",
)
@problem_option
@judge_option
@judge_options
@click.option(
    "--baselines/--no-baselines",
    default=False,
    help="Compare with torch.compile, and with eager in a CUDA graph, too; the first time that takes minutes.",
)
@click.option("--check", is_flag=True, help="Exit with 1 unless the kernel of FILE is correct.")
@click.option(
    "--shapes",
    multiple=True,
    is_flag=False,
    flag_value=DRAWN,
    metavar="[N=513,M=64]",
    help="Judge the kernel of FILE at other sizes, without timing: at values of the problem's module constants, once "
    "for each time the option is given; alone, at sizes that are drawn.",
)
@click.option(
    "--shapes-seed", type=int, default=0, show_default=True, help="Another number draws other sizes for --shapes."
)
@click.option(
    "--opinfo",
    is_flag=True,
    help="Judge the kernel of FILE on PyTorch's own samples of the operator that the problem is, without timing.",
)
@json_line_option
@kernelbench_option
def evaluate(
    file: Path | None,
    batch: Path | None,
    out: Path | None,
    problem_name: str,
    judge: str,
    choice: SettingsChoice,
    baselines: bool,
    check: bool,
    shapes: tuple[str, ...],
    shapes_seed: int,
    opinfo: bool,
    as_json: bool,
    kernelbench_dir: Path | None,
) -> int:
    """Judge one kernel file: is it correct, and how fast is it? Or, with --batch, a folder of files.

    FILE defines class ModelNew. The exit code is 0 for every verdict, and 1 when nothing could be judged; with --check
    it is 0 for a correct kernel alone. With --json the result is an object with verdict, message, tags,
    precision_class, speedup, speedup_low and more.

    With --shapes the kernel is tagged shape-general if it is right at all sizes; --check asks for that. With --opinfo,
    --check asks for all samples.

    A batch needs no archive and no network. The same command continues a batch that was stopped; `kbevolve import
    RESULTS` adds the verdicts to an archive.

    --judge kernelbench shows what KernelBench's own recipe says of FILE, for comparison; the object then has outcome,
    compiled, kernelbench_speedup and more.
    """
    by_recipe = judge == "kernelbench"
    _check_task(file, batch, out, check=check)
    if by_recipe and (batch or baselines):
        option = "--batch" if batch else "--baselines"
        raise UsageError(f"{option} is for kbevolve's own judge; --judge kernelbench judges one FILE")
    if shapes and opinfo:
        raise UsageError("--shapes and --opinfo: give one of them")
    if (shapes or opinfo) and (batch or baselines or by_recipe):
        option = "--shapes" if shapes else "--opinfo"
        raise UsageError(f"{option} is for one FILE and our own judge, without --baselines: nothing is timed")
    kernel = read_kernel(file) if file else None
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = replace(choice, overrides={**choice.overrides, "evaluation.baselines": baselines}).load()
    if warning := load_warning():
        note(Console(stderr=True), warning)
    if by_recipe:
        assert kernel is not None, "checked above"
        return _judge_by_recipe(problem, kernel, settings, recipe_device(devices, settings), as_json, check=check)
    if (shapes or opinfo) and kernel is not None:
        task = VariantTask(problem=problem, kernel=kernel, devices=devices, settings=settings)
        with interruptible():
            if opinfo:
                return evaluate_samples(task, check=check, as_json=as_json)
            return evaluate_shapes(task, shapes, seed=shapes_seed, check=check, as_json=as_json)
    judges_for = partial(open_judges, devices, settings)
    if batch is not None and out is not None:
        found = read_batch(batch, problem=problem)
        with interruptible(), ResultsFile(out) as results:
            session = BatchSession(
                batch=found, problem=problem, device=devices.device, settings=settings.evaluation, out=results
            )
            return _judge_batch(session, judges_for, as_json)
    assert kernel is not None, "either a file or a batch"
    announce(f"Judging {kernel.id} on {devices.description}, after the reference")
    with judges_for() as judges:
        if baselines:
            _measure_baselines(judges, problem, settings.evaluation)
        evaluation = judges.evaluate(problem, kernel)
        # If the file was refused unread, the reference need not run.
        flags = judges.card(problem).flags if baselines or "prepare" in evaluation.execution.phases else {}
    # Every process of the kernel has ended: it can print nothing after this.
    code = 1 if check and evaluation.verdict is not Verdict.CORRECT else 0
    if as_json:
        # Without the lists of raw blocks, which would hide the verdict.
        facts = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        print_json_line(facts | {"problem_name": problem.name, "card_flags": flags})
        return code
    fields = {
        "kernel": f"{kernel.id}, {kernel.backend.value}",
        "problem": problem.name,
        **evaluation_fields(evaluation),
        **{flag: f"{reason} (the problem)" for flag, reason in flags.items()},
    }
    print_fields(Console(), fields)
    if evaluation.profile is not None:
        print_profile(Console(), evaluation.profile)
    return code


def _judge_by_recipe(
    problem: Problem, kernel: Kernel, settings: Settings, device: Device, as_json: bool, *, check: bool
) -> int:
    """Print what KernelBench's recipe says of one kernel; the exit code."""
    precision = settings.evaluation.precision
    verdict = judge_by_recipe(problem, kernel, device, precision, settings.kernelbench)
    if as_json:
        facts = asdict(verdict)
        facts["kernelbench_speedup"] = facts.pop("speedup")  # no script takes it for ours
        where = {"problem_name": problem.name, "kernel": kernel.id, "device": device.fingerprint}
        print_json_line({"judge": "kernelbench", "note": LABEL, **where, "precision": precision, **facts})
    else:
        where = {"kernel": f"{kernel.id}, {kernel.backend.value}", "problem": problem.name}
        where["device"] = f"{device.description}, {precision}"
        print_fields(Console(), where | recipe_fields(verdict))
    return 1 if check and verdict.outcome is not Outcome.CORRECT else 0


def _check_task(file: Path | None, batch: Path | None, out: Path | None, *, check: bool) -> None:
    if check and batch:
        raise UsageError("--check is for one FILE; the results of --batch hold each verdict")
    if file and batch:
        raise UsageError(f"both FILE ({file}) and --batch ({batch}): give the one file, or the folder")
    if not file and not batch:
        raise UsageError("nothing to judge: name a FILE, or a folder with --batch DIR --out results.jsonl")
    if batch and not out:
        raise UsageError(f"--batch {batch} needs a file for the results: --out results.jsonl")
    if out and not batch:
        raise UsageError(f"--out {out} is for --batch DIR; the verdict of one FILE is printed, with --json for scripts")


def _judge_batch(session: BatchSession, judges_for: Callable[[], Judges], as_json: bool) -> int:
    """Judge the kernels without a line, and print a summary; the exit code."""
    console = Console(stderr=True)
    for line in session.notes():
        note(console, line)
    missing, interrupted = len(session.missing()), False
    with BatchProgress(missing, console) as progress:
        if missing:  # else no process is started
            try:
                with judges_for() as judges:
                    if session.settings.baselines:
                        _measure_baselines(judges, session.problem, session.settings)
                    session.judge(judges, width=judges.width, report=progress)
            except KeyboardInterrupt:
                interrupted = True
    summary = summary_of(session, progress)
    if as_json:
        print_json_line(summary)
    else:
        print_batch_summary(Console(), summary)
    if interrupted:
        note(console, "Interrupted; the same command continues the batch.")
    return INTERRUPTED if interrupted else 0


def _measure_baselines(judges: Judges, problem: Problem, settings: EvaluationSettings) -> None:
    """Measure the baselines of the next evaluations, unless kernels of the problem are not judged at all."""
    if settings.force or not judges.card(problem).degenerate:
        judges.baselines(problem)
