"""`kbevolve pending` and `kbevolve import`: kernels for a machine without the archive, and the verdicts found there."""

from pathlib import Path

import click

from kbevolve.archive.formatting import counted
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import FILE, FOLDER, archive_option, archive_words, json_line_option, json_option
from kbevolve.evolve.cli.render.json import print_json, print_json_line
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.runs.import_results import ImportReport
from kbevolve.evolve.runs.import_results import import_results as read_results
from kbevolve.evolve.runs.pending import batch_command, write_pending

#: Refused lines that are shown one by one; more lines have the same few reasons.
_SHOWN = 20


@click.command(epilog="Example: kbevolve pending kernels --run latest")
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--run",
    "which",
    default="latest",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run.  [default: the latest]",
)
@json_option
@archive_option
def pending(folder: Path, which: str, as_json: bool, archive_path: Path) -> None:
    """Write the kernels of a run that wait for a verdict into DIR, with the run's problem and settings.

    A machine without the archive judges them with `kbevolve evaluate --batch`; `kbevolve import` reads the verdicts.
    """
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(which)
        written = write_pending(archive, run, folder)
    judge, collect = batch_command(folder), f"kbevolve import results.jsonl --run {run.id}{archive_words(archive_path)}"
    if as_json:
        kernels = [kernel.id for _, kernel in written]
        print_json(
            {
                "run": run.id,
                "device": run.device,
                "kernels": kernels,
                "folder": folder if written else None,
                "judge_command": judge,
                "import_command": collect,
            }
        )
        return
    if not written:
        click.echo(f"Every kernel of run {run.id} has a verdict; nothing written.")
        return
    click.echo(f"Wrote {counted(len(written), 'kernel')} of run {run.id} to {folder}. On a machine with {run.device}:")
    click.echo(f"  {judge}")
    click.echo("Then here:")
    click.echo(f"  {collect}")


@click.command("import", epilog="Example: kbevolve import results.jsonl")
@click.argument("results", type=FILE)
@click.option(
    "--run",
    "which",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Accept only this run's problem, precision and device.",
)
@json_line_option
@archive_option
def import_results(results: Path, which: str | None, as_json: bool, archive_path: Path) -> int:
    """Import the verdicts that `kbevolve evaluate --batch` wrote into RESULTS.

    A run does not judge these kernels again. A kernel that is unknown to the archive is kept without lineage. A verdict
    that the archive has is not added twice. Lines that cannot be used are shown; the exit code is then 1, and all other
    lines are added.
    """
    with Archive(archive_path, create=False) as archive:
        report = read_results(archive, results, archive.runs.get(which) if which else None)
    for number, why in report.refused[:_SHOWN]:
        click.echo(f"kbevolve: {results}, line {number}: {printable(why)}", err=True)
    if len(report.refused) > _SHOWN:
        click.echo(f"kbevolve: {results}: {len(report.refused) - _SHOWN} more lines were refused", err=True)
    if as_json:
        print_json_line(report)
    else:
        for line in _lines(report, results, archive_path):
            click.echo(line)
    return 1 if report.refused else 0


def _lines(report: ImportReport, results: Path, archive_path: Path) -> list[str]:
    refused = f", {len(report.refused)} refused" if report.refused else ""
    lines = [f"{results}: {report.added} added, {report.known} known{refused}."]
    if report.torn:
        lines.append("The last line is incomplete; continue the batch to judge that kernel again.")
    if report.without_lineage:
        lines.append(f"Without lineage in this archive: {counted(report.without_lineage, 'kernel')}.")
    for run in report.runs:
        count = "some" if len(report.runs) > 1 else str(report.awaited)
        lines.append(f"A run waited for {count} of them: kbevolve resume {run}{archive_words(archive_path)}")
    return lines
