"""Brings home what was found elsewhere: a file of findings into the archive, every line of it or none of that line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.archive.batch_results import Finding, read_findings
from kbevolve.archive.records import Birth, Run
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of a file of findings."""

    #: Findings that the archive had not, and those that it had to the last number.
    added: int
    known: int
    #: Kernels that a birth of a run waited for, and kernels among the added ones that nobody bore here.
    awaited: int
    unborn: int
    #: Runs whose births waited, the first first.
    runs: tuple[str, ...] = ()
    #: Number of a line, counted from 1, and why it was left out.
    refused: tuple[tuple[int, str], ...] = ()
    #: Whether the last line was cut short: its writer was killed, and judges that kernel again.
    torn: bool = False


def tell(archive: Archive, file: Path, run: Run | None = None) -> Told:
    """Add all findings of a file in one transaction, except those that are there already.

    Args:
        archive: where they go.
        file: lines as `kbevolve evaluate --batch` writes them.
        run: take only what could have been found by this run: its problem, precision and device.

    Raises:
        UsageError: the file cannot be read.
        ArchiveError: the archive cannot be written; then nothing was added.
    """
    try:
        read = read_findings(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that `kbevolve evaluate --batch` wrote") from None
    refused = list(read.bad)
    accepted = []
    for number, finding in read.findings:
        why = _unfit(finding, run) if run else ""
        if why:
            refused.append((number, why))
        else:
            accepted.append(finding)
    births = {one.evaluation.kernel: archive.births_of(one.evaluation.kernel) for one in accepted}
    waited = _waiting_runs(archive, accepted, births)
    new = archive.add_found([(one.problem, one.kernel, one.evaluation) for one in accepted])
    added = {one.evaluation.kernel for one, is_new in zip(accepted, new, strict=True) if is_new}
    return Told(
        added=sum(new),
        known=len(new) - sum(new),
        awaited=len(waited),
        unborn=sum(not births[kernel] for kernel in added),
        runs=tuple(dict.fromkeys(run_id for run_ids in waited.values() for run_id in run_ids)),
        refused=tuple(sorted(refused)),
        torn=bool(read.torn),
    )


def _unfit(finding: Finding, run: Run) -> str:
    """Why a run cannot take a finding; "" when it can."""
    found = finding.evaluation
    if found.problem != run.problem:
        return (
            f"it is about {finding.problem_name} (text {found.problem}), run {run.id} about {run.problem_name} "
            f"(text {run.problem})"
        )
    if found.precision != precision_of(run):
        return f"it was judged for {found.precision}, run {run.id} asks for {precision_of(run)}"
    if found.device != run.device:
        return (
            f"it was measured on {found.device}, run {run.id} on {run.device}; times of two are never ranked together"
        )
    return ""


def _waiting_runs(
    archive: Archive, findings: Sequence[Finding], births: Mapping[str, Sequence[Birth]]
) -> dict[str, list[str]]:
    """Kernels that have no verdict yet under the conditions of their finding -> the runs that wait for it."""
    runs: dict[str, Run] = {}
    waiting: dict[str, list[str]] = {}
    for finding in findings:
        kernel, *conditions = finding.conditions
        found = finding.evaluation
        if archive.evaluation(kernel, found.problem, found.device, found.precision) is not None:
            continue
        for birth in births[kernel]:
            run = runs.setdefault(birth.run, archive.run(birth.run))
            if [run.problem, precision_of(run), run.device] == conditions:
                waiting.setdefault(kernel, []).append(run.id)
    return waiting
