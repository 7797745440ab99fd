"""`kbevolve tell`: bring what was found elsewhere into the archive."""

from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.evolve.options import archive_option, archive_words
from kbevolve.evolve.plain_values import print_json_line
from kbevolve.evolve.tables import printable
from kbevolve.evolve.telling import Told
from kbevolve.evolve.telling import tell as tell_findings

#: Refused lines that are named one by one; more have the same few reasons.
_NAMED = 20


@click.command(epilog="Example: kbevolve tell results.jsonl")
@click.argument("results", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--run", "which", metavar="RUN", help="Take only what this run could have found: its problem, precision and device."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in one line, last on standard output.")
@archive_option
def tell(results: Path, which: str | None, as_json: bool, archive_path: Path) -> int:
    """Bring the findings of `kbevolve evaluate --batch` into the archive.

    Kernels that a run waits for are not judged again by `kbevolve resume`; kernels that the archive does not know are
    kept without a birth. What is there already is not added twice. Lines that are no findings, or none for --run, are
    named and left out; then the exit code is 1, and all the others have been added.
    """
    with Archive(archive_path, create=False) as archive:
        told = tell_findings(archive, results, archive.run(which) if which else None)
    for number, why in told.refused[:_NAMED]:
        click.echo(f"kbevolve: {results}, line {number}: {printable(why)}", err=True)
    if len(told.refused) > _NAMED:
        click.echo(f"kbevolve: {results}: {len(told.refused) - _NAMED} more lines like these", err=True)
    if as_json:
        print_json_line(told)
    else:
        _print(told, results, archive_path)
    return 1 if told.refused else 0


def _print(told: Told, results: Path, archive_path: Path) -> None:
    parts = [f"{told.added} added", f"{told.known} there already"]
    if told.refused:
        parts.append(f"{len(told.refused)} left out")
    click.echo(f"{results}: {', '.join(parts)}.")
    if told.torn:
        click.echo("Its last line was cut short; the batch judges that kernel again when it goes on.")
    if told.unborn:
        click.echo(f"{told.unborn} of the kernels were not born here; they are kept with their evaluation alone.")
    for run in told.runs:
        count = "some" if len(told.runs) > 1 else str(told.awaited)
        click.echo(f"A run waited for {count} of them: kbevolve resume {run}{archive_words(archive_path)}")
