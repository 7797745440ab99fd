"""`kbevolve archive search`: full text over ideas and kernels."""

from pathlib import Path

import click

from kbevolve.archive.search_index import Hit
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, note, print_table

_COLUMNS: tuple[Column[Hit], ...] = (
    Column("in", lambda one: one.table.removesuffix("s")),
    Column("kernel", lambda one: one.kernel or (one.id if one.table == "kernels" else "")),
    Column("run", lambda one: one.run, least_width=100),
    Column("what", lambda one: one.line, flexible=True),
)


@click.command(short_help="Search in ideas and kernels.", epilog="Example: kbevolve archive search online softmax")
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Ideas, and kernels, at most."
)
@json_option
@archive_option
def search(words: tuple[str, ...], limit: int, as_json: bool, archive_path: Path) -> None:
    """Search in ideas and in sources for all words of TEXT, the last one also as the beginning of a word.

    Ideas come first, each with the first kernel that carries it out; then kernels, each with a line that has the first
    word. The best matches of each come first. BLOCK_M is one word.
    """
    query = " ".join(words)
    with Archive(archive_path, read_only=True) as store:
        found = store.search_index().find(query, limit=limit)
    if as_json:
        print_json([hit._asdict() for hit in found])
    elif found:
        print_table(Console(), _COLUMNS, found)
    else:
        note(Console(stderr=True), f"No idea and no kernel has all of: {query}")
