"""`kbevolve status` and `kbevolve watch`: a run seen from a second terminal. Both only read the archive."""

from pathlib import Path
from time import sleep

import click
from rich.live import Live

from kbevolve.archive.record_json import plain
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.status import status_fields, status_view
from kbevolve.evolve.cli.render.tables import print_fields
from kbevolve.evolve.runs.status import status_of

_run_argument = click.argument("which", default="latest", metavar="[RUN]", shell_complete=complete_runs)


@click.command(epilog="Example: kbevolve status latest")
@_run_argument
@json_option
@archive_option
def status(which: str, as_json: bool, archive_path: Path) -> None:
    """Show how far a run is (an id, or latest): whether a process works on it, its best kernel, counts, rate."""
    with Archive(archive_path, read_only=True) as archive:
        found = status_of(archive, archive.runs.get(which))
    if as_json:
        print_json({**plain(found), "recent": [entry._asdict() for entry in found.recent]})
    else:
        print_fields(Console(), status_fields(found))


@click.command(epilog="Example: kbevolve watch latest")
@_run_argument
@click.option(
    "--every",
    "seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between two looks.",
)
@archive_option
def watch(which: str, seconds: float, archive_path: Path) -> None:
    """Follow a run (an id, or latest) until no process works on it; Ctrl-C ends the watching, not the run."""
    with Archive(archive_path, read_only=True) as archive:
        run = archive.runs.get(which)
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                found = status_of(archive, run)
                live.update(status_view(found), refresh=True)
                if found.process is None:
                    return
                sleep(seconds)
