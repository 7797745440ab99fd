"""`kbevolve report`: a run as one file, to send or to keep."""

from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import FILE, archive_option


@click.command(epilog="Example: kbevolve report latest -o softmax.html")
@click.argument("which", default="latest", metavar="[RUN]", shell_complete=complete_runs)
@click.option(
    "-o", "--output", type=FILE, default=Path("report.html"), show_default=True, metavar="FILE",
    help="The file to write: .html holds everything; .md is a summary for a pull request, with its figures beside it.",
)  # fmt: skip
@archive_option
def report(which: str, output: Path, archive_path: Path) -> None:
    """Write a run (an id, or latest) as one HTML file, or as Markdown.

    The result, how the best kernel came to be, ideas, the best kernels, and figures: best so far, lineage, speedups,
    niches, roofline, time by phase.
    """
    from kbevolve.evolve.web.report import write_report

    with Archive(archive_path, read_only=True) as archive:
        written = write_report(archive, which, output)
    pictures = f", and {len(written) - 1} pictures beside it" if len(written) > 1 else ""
    click.echo(f"Wrote {output}{pictures}.")
