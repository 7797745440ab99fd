"""`kbevolve profile`: show where a kernel's time goes."""

from dataclasses import replace
from pathlib import Path

import click

from kbevolve.archive.parts import flat
from kbevolve.archive.records import Evaluation, Kernel, Profile, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.options import FILE, json_option, kernelbench_option, problem_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.kernel import evaluation_fields
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.tables import announce, note, print_fields, say
from kbevolve.evolve.cli.settings_options import SettingsChoice, profile_options
from kbevolve.evolve.proposers.seeds.seeds import read_kernel


@click.command(epilog="Example: kbevolve profile kernel.py --problem L1/matmul --ncu")
@click.argument("file", type=FILE)
@problem_option
@profile_options
@click.option(
    "--ncu",
    is_flag=True,
    help="Read hardware counters with Nsight Compute, too. The kernel then runs once more, outside the sandbox.",
)
@json_option
@kernelbench_option
def profile(
    file: Path, problem_name: str, choice: SettingsChoice, ncu: bool, as_json: bool, kernelbench_dir: Path | None
) -> None:
    """Show where a kernel's time goes: its launches, its share of the roofline, and its likely bottleneck.

    FILE defines class ModelNew. Only correct kernels are profiled.
    """
    kernel = read_kernel(file)
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = choice.load({"evaluation.force": True})  # nothing is ranked here, so any problem is accepted
    announce(f"Judging and profiling {kernel.id} on {devices.device.description}")
    evaluation, refusal = _profiled(problem, kernel, devices.device, settings.evaluation, ncu=ncu)
    if as_json:
        facts = ("kernel", "problem", "device", "precision", "verdict", "message", "time_ms", "speedup", "profile")
        print_json({name: flat(evaluation)[name] for name in facts} | {"ncu": refusal})
        return
    console = Console(highlight=False)
    print_fields(console, {"problem": problem.name, **evaluation_fields(evaluation)})
    if evaluation.verdict is not Verdict.CORRECT:
        return
    console.print()
    if evaluation.profile is None:
        say(console, "The profiler reported nothing; see `kbevolve doctor`.")
    else:
        print_profile(console, evaluation.profile)
    if refusal:
        note(console, f"No counters: {refusal}.")


def _profiled(
    problem: Problem, kernel: Kernel, device: Device, settings: EvaluationSettings, *, ncu: bool
) -> tuple[Evaluation, str]:
    """The evaluation with its profile, and why counters are missing ("" if they are there, or were not requested)."""
    from kbevolve.evaluators.feedback.counters import read_counters
    from kbevolve.evaluators.feedback.profile import with_counters
    from kbevolve.evaluators.judging.judge import Judge  # imports torch

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
