"""`kbevolve profile`: show where a kernel's time goes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import speedup_words, time_words, verdict_words
from kbevolve.archive.parts import flat
from kbevolve.archive.records import Evaluation, Kernel, Profile, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, parse_override
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.options import kernelbench_option, problem_option
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.kernel import print_fields
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.settings_options import device_option, precision_option
from kbevolve.evolve.proposers.seeds.files import read_kernel
from kbevolve.evolve.runs.settings import settings_for


@click.command(epilog="Example: kbevolve profile kernel.py --problem L1/matmul --ncu")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@problem_option
@device_option
@precision_option
@click.option(
    "--ncu",
    is_flag=True,
    help="Read hardware counters with Nsight Compute, too. The kernel then runs once more, outside the sandbox.",
)
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="E.g. evaluation.rounds=5.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
@kernelbench_option
def profile(
    file: Path,
    problem_name: str,
    device: str | None,
    precision: str | None,
    ncu: bool,
    assignments: tuple[str, ...],
    as_json: bool,
    kernelbench_dir: Path | None,
) -> None:
    """Show where a kernel's time goes: its launches, its share of the roofline, and its likely bottleneck.

    FILE defines class ModelNew. Only correct kernels are profiled.
    """
    kernel = read_kernel(file)
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    overrides: dict[str, Any] = {"evaluation.force": True}  # nothing is ranked here, so any problem is accepted
    overrides |= dict(parse_override(text) for text in assignments)
    overrides |= {"device": device} if device else {}
    overrides |= {"evaluation.precision": precision} if precision else {}
    settings, found = settings_for(overrides=overrides)
    evaluation, refusal = _profiled(problem, kernel, found, settings.evaluation, ncu=ncu)
    if as_json:
        facts = ("kernel", "problem", "device", "precision", "verdict", "message", "time_ms", "speedup", "profile")
        print_json({name: flat(evaluation)[name] for name in facts} | {"ncu": refusal})
    else:
        _print(evaluation, problem, found, refusal)


def _profiled(
    problem: Problem, kernel: Kernel, device: Device, settings: EvaluationSettings, *, ncu: bool
) -> tuple[Evaluation, str]:
    """The evaluation with its profile, and why counters are missing ("" if they are there, or were not requested)."""
    from kbevolve.evaluators.feedback.counters import read_counters
    from kbevolve.evaluators.feedback.profile import with_counters
    from kbevolve.evaluators.judging.judge import (
        Judge,  # imports torch, which a mistake in the command need not wait for
    )

    with Judge(device, settings.model_copy(update={"profile": True})) as judge:
        evaluation = judge.evaluate(problem, kernel)
    if not ncu or evaluation.verdict is not Verdict.CORRECT or evaluation.timing.time_ms is None:
        return evaluation, ""
    counted = read_counters(
        problem, kernel.source, device=device, precision=settings.precision, seconds=settings.total_seconds
    )
    if counted.refusal:
        return evaluation, counted.refusal
    seen = with_counters(evaluation.profile or Profile(), counted.readings, time_ms=evaluation.timing.time_ms)
    return replace(evaluation, profile=seen), ""


def _print(evaluation: Evaluation, problem: Problem, device: Device, refusal: str) -> None:
    console = Console(highlight=False)
    fields: dict[str, str | Text] = {
        "problem": f"{problem.name}, {evaluation.precision}",
        "device": device.description,
    }
    if evaluation.verdict is not Verdict.CORRECT:
        words = verdict_words(evaluation.verdict)
        fields["verdict"] = Text(words, style=f"bold {VERDICT_STYLE[evaluation.verdict]}")
        fields["message"] = evaluation.message
        print_fields(console, fields)
        return
    fields["time"] = f"{time_words(evaluation.timing.time_ms)}, {speedup_words(evaluation)} over eager"
    print_fields(console, fields)
    console.print()
    if evaluation.profile is None:
        console.print("The profiler reported nothing; see `kbevolve doctor`.")
    else:
        print_profile(console, evaluation.profile)
    if refusal:
        console.print(Text(f"No counters: {refusal}.", style="dim"), soft_wrap=True)
