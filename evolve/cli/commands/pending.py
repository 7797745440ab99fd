"""`kbevolve pending`: the kernels of a run that wait for a verdict, as a folder for another machine."""

from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.options import archive_option, archive_words
from kbevolve.evolve.runs.pending import batch_command, write_pending


@click.command(epilog="Example: kbevolve pending kernels --run latest")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--run", "which", default="latest", metavar="RUN", help="The run.  [default: the latest]")
@archive_option
def pending(folder: Path, which: str, archive_path: Path) -> None:
    """Write the kernels of a run that wait for a verdict into DIR, with the run's problem and settings.

    A machine without the archive judges them with `kbevolve evaluate --batch`; `kbevolve import` reads the verdicts.
    """
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(which)
        written = write_pending(archive, run, folder)
    if not written:
        click.echo(f"Every kernel of run {run.id} has a verdict; nothing written.")
        return
    click.echo(f"Wrote {len(written)} kernels of run {run.id} to {folder}. On a machine with {run.device}:")
    click.echo(f"  {batch_command(folder)}")
    click.echo("Then here:")
    click.echo(f"  kbevolve import results.jsonl --run {run.id}{archive_words(archive_path)}")
