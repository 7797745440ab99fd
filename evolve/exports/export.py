"""From the archive to files: choose a kernel, measure it again, and write it only if its speedup holds.

The speedup in an exported file is always a new measurement, which the archive keeps: the best of many measurements is
partly luck, and the machine may have changed.
"""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

from kbevolve.archive.export import exported_source
from kbevolve.archive.lineage import main_line
from kbevolve.archive.records import Kernel, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.exports.files import write_file
from kbevolve.evolve.exports.formats import FORMATS
from kbevolve.evolve.exports.measured import MeasuredKernel
from kbevolve.evolve.runs.verification import Claim, Verified, birth_run, claim_of, evaluation_settings, verify


def choose(archive: Archive, problem_name: str | None, device: Device, *, which: str | None = None) -> Claim:
    """The kernel named `which`, else the best of the problem on this device; without a problem, of the latest run's.

    Raises:
        ArchiveError: the archive has no run of the problem, no such kernel, or nothing correct on this device.
    """
    named = None if which is None else archive.kernels.get(which)
    if problem_name is not None:
        newest = archive.runs.latest_of(problem_name)
    else:
        newest = birth_run(archive, named) if named else archive.runs.get("latest")
    problem = archive.problems.get(newest.problem)
    if named is None:
        best = archive.problems.best(problem.id, device.fingerprint, evaluation_settings(newest).precision)
        if best is None:
            raise ArchiveError(_nothing_correct(archive, newest.problem_name, problem, device))
        named = archive.kernels.get(best.kernel)
    return claim_of(archive, named, _first_run(archive, named, newest), device)


def check_output(output: Path, *, force: bool, form: str = "modelnew") -> None:
    """Check the path of the output before the minute of measuring, not after.

    Raises:
        UsageError: the file exists already (without `force`), its directory does not, or its ending is not wanted.
    """
    made = FORMATS.get(form)  # a data set is made from no kernel
    folder, ending = (made.folder, made.ending) if made else (False, "")
    if output.is_dir() and not folder:
        raise UsageError(f"{output} is a directory; name a file: -o {output / 'best.py'}")
    if folder and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; {form} is a folder: -o {output.with_suffix('')}")
    if not output.name.endswith(ending):
        raise UsageError(f"{output}: a file for {form} ends in {ending}: -o {output.with_suffix(ending)}")
    if made and made.package and not output.name.isidentifier():
        raise UsageError(f"{output.name!r} is no name for a Python package; name one to import, e.g. fast_op")
    if output.exists() and not force:
        raise UsageError(f"{output} exists already; --force writes over it")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no directory {output.parent}; make it first: mkdir -p {output.parent}")


def check_task(task: str, form: str) -> None:
    """Check the receiver's name of the task.

    Raises:
        UsageError: it is missing, a file in this format names no task, or it is not one word.
    """
    wanted = FORMATS[form].task if form in FORMATS else ""
    if task and not wanted:
        naming = " or ".join(name for name, made in FORMATS.items() if made.task)
        raise UsageError(f"--task is for --format {naming}; leave it out")
    if wanted and not task:
        raise UsageError(f"--format {form} needs the name of the {wanted} that the file is for: --task NAME")
    if not re.fullmatch(r"[\w.:/-]*", task):
        raise UsageError(f"--task {task!r}: the name of a {wanted} is one word of letters, digits and -_.:/")


def measure_and_write(
    archive: Archive,
    claim: Claim,
    device: Device,
    output: Path,
    *,
    form: str = "modelnew",
    slower: bool = False,
    task: str = "",
) -> Verified:
    """Judge the kernel again, keep the evaluation, and write the kernel if its speedup holds.

    Args:
        archive: gets the new evaluation.
        claim: the kernel.
        device: to measure on.
        output: the file or folder to write.
        form: one of `formats.FORMATS`.
        slower: write a correct kernel whose speedup does not hold, too.
        task: what the receiver calls the task; "" for a format that names none.

    Raises:
        EvaluatorError: the judge does not work on this machine.
        ArchiveError: the files or the archive cannot be written.
        UsageError: the format does not suit the kernel.
    """
    made = FORMATS[form]
    made.check(claim.kernel)
    (verified,) = verify(archive, [claim], device)
    evaluation = verified.now
    if verified.doubt and not (slower and evaluation.verdict is Verdict.CORRECT):
        return verified
    measured = archive.runs.evaluations(claim.run.id)
    text = exported_source(
        claim.kernel,
        evaluation,
        run=claim.run,
        device=device.description,
        line=main_line(claim.kernel.id, archive.runs.births(claim.run.id, texts=False)),
        speedups={kernel: found.timing.speedup for kernel, found in measured.items()},
        command=_repeat(claim, device, made.kernel_file or output.name),
        moment=datetime.now(UTC),
        confirmation=claim.confirmation,
    )
    found = MeasuredKernel(
        kernel=claim.kernel,
        problem=claim.problem,
        run=claim.run,
        device=device,
        evaluation=evaluation,
        text=text,
        output_name=output.name,
        task=task,
    )
    files = made.files(found)
    if isinstance(files, str):
        write_file(output, files)
    else:
        output.mkdir(exist_ok=True)
        for name, text in files.items():
            write_file(output / name, text)
    return verified


def _first_run(archive: Archive, kernel: Kernel, newest: Run) -> Run:
    """The first run on this problem that created the kernel; the newest one for a kernel from elsewhere."""
    for birth in archive.kernels.births(kernel.id):
        run = archive.runs.get(birth.run)
        if run.problem == newest.problem:
            return run
    return newest


def _repeat(claim: Claim, device: Device, file: str) -> str:
    """The command line that measures the exported kernel again."""
    words = ["kbevolve", "evaluate", file, "--problem", claim.run.problem_name, "--device", device.type]
    precision = evaluation_settings(claim.run).precision
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
