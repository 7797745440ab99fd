"""`kbevolve evaluate`: judge one kernel file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import parse_override
from kbevolve.evaluators.devices import Device
from kbevolve.evolve.kernel_files import read_kernel
from kbevolve.evolve.options import device_option, force_option, kernelbench_option, library_option, problem_option
from kbevolve.evolve.plain_values import plain, print_json_line
from kbevolve.evolve.portraits import print_fields, standing_fields
from kbevolve.evolve.profiles import print_profile
from kbevolve.evolve.setup import settings_for
from kbevolve.evolve.words import VERDICT_STYLE, speedup_words, time_words, verdict_words


@click.command(epilog="Example: kbevolve evaluate kernel.py --problem L1/matmul --json")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@problem_option
@device_option
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
    file: Path,
    problem_name: str,
    device: str | None,
    precision: str | None,
    allow_library: str | None,
    force: bool | None,
    baselines: bool,
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    kernelbench_dir: Path | None,
) -> None:
    """Judge one kernel file: is it correct, and how fast is it?

    FILE defines class ModelNew. The exit code is 0 whatever the verdict is, and 1 when nothing could be judged. With
    --json the last line is an object with verdict, message, tags, precision_class, speedup, speedup_low and more.
    """
    kernel = read_kernel(file)
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    overrides: dict[str, Any] = dict(parse_override(text) for text in assignments)
    short = {
        "device": device,
        "evaluation.precision": precision,
        "evaluation.allow_library": allow_library,
        "evaluation.force": force,
        "evaluation.baselines": baselines,
    }
    overrides |= {name: value for name, value in short.items() if value is not None}
    settings, found = settings_for(preset=preset, config=config, overrides=overrides)

    from kbevolve.evaluators.judge import Judge  # imports torch, which a mistake above need not wait for

    with Judge(found, settings.evaluation) as judge:
        if baselines and (settings.evaluation.force or not judge.card(problem).degenerate):
            judge.baselines(problem)  # the evaluation compares with those that are known
        evaluation = judge.evaluate(problem, kernel)
        phases = {name: round(seconds, 3) for name, seconds in judge.phases.items()}
        # A file that is refused unread is not worth running the reference for.
        flags = judge.card(problem).flags if "prepare" in phases else {}
    # Only now that every process of the kernel is dead: nothing that it prints can come behind.
    if as_json:
        # Lists of raw blocks stay in the archive of a run; here they would bury the verdict.
        facts = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        print_json_line(facts | {"problem_name": problem.name, "card_flags": flags, "phases": phases})
    else:
        _print(evaluation, kernel, problem, flags, found, phases)


def _print(
    evaluation: Evaluation,
    kernel: Kernel,
    problem: Problem,
    flags: Mapping[str, str],
    device: Device,
    phases: dict[str, float],
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
    if evaluation.error is not None:
        fields["error"] = (
            f"{evaluation.error:.2g} against fp64, {evaluation.precision_class or 'no rounding error'}; "
            f"the reference's own: {evaluation.reference_error:.2g}"
        )
        if evaluation.worst_tile is not None:
            fields["worst tile"] = f"{evaluation.worst_tile:.2g}"
        fields["allclose"] = f"{'yes' if evaluation.allclose else 'no'} (KernelBench's test)"
    if evaluation.verdict is Verdict.CORRECT:
        fields["time"] = f"{time_words(evaluation.time_ms)}, reference {time_words(evaluation.reference_ms)}"
        fields["speedup"] = Text(f"{speedup_words(evaluation)} over eager", style="bold")
    fields |= standing_fields(evaluation)
    if evaluation.tags:
        fields["tags"] = ", ".join(evaluation.tags)
    if evaluation.sandbox:
        fields["sandbox"] = evaluation.sandbox
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases.items() if seconds >= 0.05)
    fields["seconds"] = f"{evaluation.seconds:.1f} in all" + (f": {spent}" if spent else "")
    print_fields(console, fields)
    if evaluation.profile is not None:
        print_profile(console, evaluation.profile)
