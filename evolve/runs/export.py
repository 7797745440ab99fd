"""From the archive to a file: choose a kernel, measure it again, and write it only if it is still correct.

The speedup in an exported file is always a new measurement, which the archive keeps: the best of many measurements is
partly luck, and the machine may have changed.
"""

import json
import secrets
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kbevolve.archive.export import exported_source
from kbevolve.archive.lineage import main_line
from kbevolve.archive.records import Confirmation, Evaluation, Kernel, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.evaluator import Evaluator


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportChoice:
    """The kernel to export."""

    kernel: Kernel
    problem: Problem
    #: A run that created the kernel: it gives the lineage and says how to measure.
    run: Run
    #: Speedup over eager that the run measured, confirmed for a champion; None without one on this device.
    speedup_then: float | None
    #: The published confirmation, when this kernel is the champion.
    confirmation: Confirmation | None = None


def choose(archive: Archive, problem_name: str, device: Device, *, which: str | None = None) -> ExportChoice:
    """The kernel named `which`, else the best of the problem on this device.

    Raises:
        ArchiveError: the archive has no run of the problem, no such kernel, or nothing correct on this device.
    """
    newest = archive.runs.latest_of(problem_name)
    problem = archive.problems.get(newest.problem)
    if which is not None:
        kernel = archive.kernels.get(which)
    else:
        best = archive.problems.best(problem.id, device.fingerprint, _evaluation_settings(newest).precision)
        if best is None:
            raise ArchiveError(_nothing_correct(archive, problem_name, problem, device))
        kernel = archive.kernels.get(best.kernel)
    run = _birth_run(archive, kernel, newest)
    then = archive.kernels.evaluation(kernel.id, problem.id, device.fingerprint, _evaluation_settings(run).precision)
    champion = archive.runs.champion(run.id) if run.device == device.fingerprint else None
    confirmation = champion if champion and champion.kernel == kernel.id else None
    measured = confirmation or (then and then.timing)
    return ExportChoice(
        kernel=kernel,
        problem=problem,
        run=run,
        speedup_then=measured.speedup if measured else None,
        confirmation=confirmation,
    )


def check_output(output: Path, *, force: bool) -> None:
    """Check the path of the output before the minute of measuring, not after.

    Raises:
        UsageError: the file exists already (without `force`), or its directory does not.
    """
    if output.is_dir():
        raise UsageError(f"{output} is a directory; name a file: -o {output / 'best.py'}")
    if output.exists() and not force:
        raise UsageError(f"{output} exists already; --force writes over it")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no directory {output.parent}; make it first: mkdir -p {output.parent}")


def plain_judge(device: Device, settings: EvaluationSettings) -> AbstractContextManager[Evaluator]:
    """The judge of exported kernels: it builds exactly as torch itself does."""
    from kbevolve.evaluators.judging.judge import Judge  # brings torch

    return Judge(device, settings, plain=True)


def measure_and_write(archive: Archive, choice: ExportChoice, device: Device, output: Path) -> Evaluation:
    """Judge the kernel again, keep the evaluation, and write the file only if the kernel is correct.

    Raises:
        EvaluatorError: the judge does not work on this machine.
        ArchiveError: the file or the archive cannot be written.
    """
    with plain_judge(device, _evaluation_settings(choice.run)) as judge:
        evaluation = judge.evaluate(choice.problem, choice.kernel)
    archive.add_evaluation(evaluation)
    if evaluation.verdict is Verdict.CORRECT:
        measured = archive.runs.evaluations(choice.run.id)
        text = exported_source(
            choice.kernel,
            evaluation,
            run=choice.run,
            device=device.description,
            line=main_line(choice.kernel.id, archive.runs.births(choice.run.id, texts=False)),
            speedups={kernel: found.timing.speedup for kernel, found in measured.items()},
            command=_repeat(choice, device, output),
            moment=datetime.now(UTC),
            confirmation=choice.confirmation,
        )
        _write(output, text)
    return evaluation


def _evaluation_settings(run: Run) -> EvaluationSettings:
    """How a run measures. The other settings are not read: they may be of another version."""
    return Settings.from_tree({"evaluation": json.loads(run.settings).get("evaluation", {})}).evaluation


def _birth_run(archive: Archive, kernel: Kernel, newest: Run) -> Run:
    """The first run on this problem that created the kernel; the newest one for a kernel from elsewhere."""
    for birth in archive.kernels.births(kernel.id):
        run = archive.runs.get(birth.run)
        if run.problem == newest.problem:
            return run
    return newest


def _repeat(choice: ExportChoice, device: Device, output: Path) -> str:
    """The command line that measures the exported file again."""
    words = ["kbevolve", "evaluate", output.name, "--problem", choice.run.problem_name, "--device", device.type]
    precision = _evaluation_settings(choice.run).precision
    if precision != EvaluationSettings().precision:
        words += ["--precision", precision]
    return shlex.join(words)


def _nothing_correct(archive: Archive, problem_name: str, problem: Problem, device: Device) -> str:
    others = archive.problems.devices(problem.id)
    if not others:
        return (
            f"{archive.path} has no correct kernel of {problem_name} yet; go on: kbevolve resume, "
            "or see what failed: kbevolve archive ls latest"
        )
    return (
        f"{archive.path} has no correct kernel of {problem_name} measured on {device.fingerprint}, only on "
        f"{', '.join(others)}; name one with --kernel ID and it is measured here"
    )


def _write(output: Path, text: str) -> None:
    """Whole or not at all: half a kernel would look like a whole one."""
    draft = output.with_name(f".{output.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(output)
    except OSError as error:
        raise ArchiveError(f"{output}: {error.strerror}; name a file in a directory that you may write to") from None
    finally:
        draft.unlink(missing_ok=True)
