"""`kbevolve archive best`: the best kernel of every problem, or the best kernels of one run."""

from pathlib import Path

import click

from kbevolve.archive.formatting import CONFIRMED, as_times, interval_words
from kbevolve.archive.standings import Standing, standings
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.cli.commands.archive.listing import list_children
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, print_table

_COLUMNS: tuple[Column[Standing], ...] = (
    Column("problem", lambda one: one.problem),
    Column("speedup", lambda one: as_times(one.speedup or 0.0), right=True),
    Column("interval", lambda one: _interval(one), least_width=60),
    Column("best kernel", lambda one: one.kernel),
    Column("run", lambda one: one.run, least_width=112),
    Column("precision", lambda one: one.precision, least_width=96),
    Column("device", lambda one: one.device, flexible=True),
)


@click.command(short_help="List the best kernels.", epilog="Example: kbevolve archive best")
@click.argument("which", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Lines at most.")
@json_option
@archive_option
def best(which: str | None, limit: int | None, as_json: bool, archive_path: Path) -> None:
    """List the best kernel of each problem and device; or, with RUN (an id, or latest), its kernels, the best first.

    Which kernel is the best, and with which speedup, is the same in every command: the confirmed one of a run, else the
    one whose interval begins highest; the reference itself only where there is no other.
    """
    with Archive(archive_path, read_only=True) as store:
        if which is not None:
            list_children(store, store.runs.get(which), best=True, verdict=None, limit=limit, as_json=as_json)
            return
        found = list(standings(store, store.runs.summaries()))[:limit]
    if as_json:
        print_json(found)
    elif found:
        print_table(Console(), _COLUMNS, found)
    else:
        raise ArchiveError("no correct kernel in this archive yet; start a run: kbevolve run --problem L1/matmul")


def _interval(one: Standing) -> str:
    words = interval_words(one.speedup_low or 0.0, one.speedup_high or 0.0)
    return f"{words} {CONFIRMED}" if one.confirmed else words
