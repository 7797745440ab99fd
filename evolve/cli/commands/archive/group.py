"""`kbevolve archive`: the group of its commands."""

import click

from kbevolve.evolve.cli.commands.archive.best import best
from kbevolve.evolve.cli.commands.archive.lineage import diff, lineage
from kbevolve.evolve.cli.commands.archive.listing import ls
from kbevolve.evolve.cli.commands.archive.search import search
from kbevolve.evolve.cli.commands.archive.show import show
from kbevolve.evolve.cli.commands.archive.stats import stats
from kbevolve.evolve.cli.commands.archive.transport import merge, pack
from kbevolve.evolve.cli.commands.archive.upkeep import check, note, rm_run


@click.group(epilog="Example: kbevolve archive ls")
def archive() -> None:
    """Look into the archive, keep it in order, and carry it elsewhere.

    Name a kernel or a run by its id or by the start of it.
    """


for command in (ls, best, show, lineage, diff, search, stats, note, check, merge, pack, rm_run):
    archive.add_command(command)
