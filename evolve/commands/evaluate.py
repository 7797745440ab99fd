"""`kbevolve evaluate`: judge one kernel file."""

import json
import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import parse_override
from kbevolve.evaluators.devices import Device
from kbevolve.evolve.options import device_option, kernelbench_option, problem_option
from kbevolve.evolve.plain_values import plain
from kbevolve.evolve.portraits import print_fields
from kbevolve.evolve.setup import settings_for
from kbevolve.evolve.words import VERDICT_STYLE, speedup_words, time_words, verdict_words


@click.command(epilog="Example: kbevolve evaluate kernel.py --problem L1/matmul --json")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@problem_option
@device_option
@click.option("--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16"]), help="What the task asks for.")
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
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
    kernelbench_dir: Path | None,
) -> None:
    """Judge one kernel file: is it correct, and how fast is it?

    FILE defines class ModelNew. The exit code is 0 whatever the verdict is, and 1 when nothing could be judged.
    """
    source = _read(file)
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    overrides: dict[str, Any] = dict(parse_override(text) for text in assignments)
    overrides |= {
        name: value
        for name, value in {"device": device, "evaluation.precision": precision}.items()
        if value is not None
    }
    settings, found = settings_for(preset=preset, config=config, overrides=overrides)

    from kbevolve.evaluators.judge import Judge  # imports torch, which a mistake above need not wait for

    kernel = Kernel.from_source(source)
    with Judge(found, settings.evaluation) as judge:
        evaluation = judge.evaluate(problem, kernel)
        phases = {name: round(seconds, 3) for name, seconds in judge.phases.items()}
    if as_json:
        # Lists of raw blocks stay in the archive of a run; here they would bury the verdict.
        facts = {name: value for name, value in plain(evaluation).items() if name != "blocks"}
        click.echo(json.dumps(facts | {"problem_name": problem.name, "phases": phases}, ensure_ascii=False))
    else:
        _print(evaluation, kernel, problem, found, phases)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {os.strerror(error.errno or 0)}; give a Python file that defines ModelNew") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not text in UTF-8; give a Python file that defines ModelNew") from None


def _print(evaluation: Evaluation, kernel: Kernel, problem: Problem, device: Device, phases: dict[str, float]) -> None:
    console = Console()
    fields: dict[str, str | Text] = {
        "verdict": Text(verdict_words(evaluation.verdict), style=f"bold {VERDICT_STYLE[evaluation.verdict]}"),
        "kernel": f"{kernel.id}, {kernel.backend.value}",
        "problem": f"{problem.name}, {evaluation.precision}",
        "device": device.description,
    }
    if evaluation.message:
        fields["message"] = evaluation.message
    if evaluation.error is not None:
        fields["error"] = (
            f"{evaluation.error:.2g} against fp64, {evaluation.precision_class or 'no rounding error'}; "
            f"the reference's own: {evaluation.reference_error:.2g}"
        )
        fields["allclose"] = f"{'yes' if evaluation.allclose else 'no'} (KernelBench's test)"
    if evaluation.verdict is Verdict.CORRECT:
        fields["time"] = f"{time_words(evaluation.time_ms)}, reference {time_words(evaluation.reference_ms)}"
        fields["speedup"] = Text(f"{speedup_words(evaluation)} over eager", style="bold")
    if evaluation.tags:
        fields["tags"] = ", ".join(evaluation.tags)
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in phases.items() if seconds >= 0.05)
    fields["seconds"] = f"{evaluation.seconds:.1f} in all" + (f": {spent}" if spent else "")
    print_fields(console, fields)
