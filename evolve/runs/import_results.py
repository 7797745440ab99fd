"""Imports verdicts of another machine: a file of `kbevolve evaluate --batch` into the archive, line by line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbevolve.archive.batch_results import BatchResult, read_results
from kbevolve.archive.records import Birth, Run
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The result of an import."""

    #: Lines that are new to the archive, and lines that it already had.
    added: int
    known: int
    #: Kernels that a run waited for, and added kernels that no run created.
    awaited: int
    without_lineage: int
    #: Runs that waited, in the order of the lines.
    runs: tuple[str, ...] = ()
    #: Number of each refused line, counted from 1, and why.
    refused: tuple[tuple[int, str], ...] = ()
    #: Whether the last line is incomplete: its writer was killed, and judges that kernel again.
    torn: bool = False


def import_results(archive: Archive, file: Path, run: Run | None = None) -> ImportReport:
    """Add the verdicts of a file in one transaction, except those that the archive has.

    With a run, lines of another problem, precision or device are refused.

    Raises:
        UsageError: the file cannot be read.
        ArchiveError: the archive cannot be written; nothing was added.
    """
    try:
        read = read_results(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that `kbevolve evaluate --batch` wrote") from None
    refused = list(read.bad)
    accepted = []
    for number, finding in read.results:
        why = _unfit(finding, run) if run else ""
        if why:
            refused.append((number, why))
        else:
            accepted.append(finding)
    births = {one.evaluation.kernel: archive.kernels.births(one.evaluation.kernel) for one in accepted}
    waited = _waiting_runs(archive, accepted, births)
    new = archive.add_found([(one.problem, one.kernel, one.evaluation) for one in accepted])
    added = {one.evaluation.kernel for one, is_new in zip(accepted, new, strict=True) if is_new}
    return ImportReport(
        added=sum(new),
        known=len(new) - sum(new),
        awaited=len(waited),
        without_lineage=sum(not births[kernel] for kernel in added),
        runs=tuple(dict.fromkeys(run_id for run_ids in waited.values() for run_id in run_ids)),
        refused=tuple(sorted(refused)),
        torn=bool(read.torn),
    )


def _unfit(finding: BatchResult, run: Run) -> str:
    """Why a line is not for this run; "" when it is."""
    found = finding.evaluation
    if found.problem != run.problem:
        return (
            f"its problem is {finding.problem_name} (text {found.problem}), that of run {run.id} is {run.problem_name} "
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
    archive: Archive, findings: Sequence[BatchResult], births: Mapping[str, Sequence[Birth]]
) -> dict[str, list[str]]:
    """Kernels without a verdict under the conditions of their line -> the runs that wait for it."""
    runs: dict[str, Run] = {}
    waiting: dict[str, list[str]] = {}
    for finding in findings:
        kernel, *conditions = finding.conditions
        found = finding.evaluation
        if archive.kernels.evaluation(kernel, found.problem, found.device, found.precision) is not None:
            continue
        for birth in births[kernel]:
            run = runs.setdefault(birth.run, archive.runs.get(birth.run))
            if [run.problem, precision_of(run), run.device] == conditions:
                waiting.setdefault(kernel, []).append(run.id)
    return waiting
