"""`kbevolve report`: a run as one file, to send or to keep."""

from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import FILE, archive_option, json_option
from kbevolve.evolve.cli.render.json import print_json


@click.command(epilog="Example: kbevolve report latest -o softmax.html")
@click.argument("which", default="latest", metavar="[RUN]", shell_complete=complete_runs)
@click.option(
    "-o", "--output", type=FILE, default=Path("report.html"), show_default=True, metavar="FILE",
    help="The file to write: .html holds everything; .md is a summary for a pull request, with its figures beside it.",
)  # fmt: skip
@json_option
@archive_option
def report(which: str, output: Path, as_json: bool, archive_path: Path) -> None:
    """Write a run (an id, or latest) as one HTML file, or as Markdown.

    The result, how the best kernel came to be, ideas, the best kernels, and figures: best so far, lineage, speedups,
    niches, roofline, time by phase.
    """
    from kbevolve.evolve.web.report import write_report

    with Archive(archive_path, read_only=True) as archive:
        run = archive.runs.get(which)
        written = write_report(archive, run.id, output)
    if as_json:
        print_json({"run": run.id, "files": written})
        return
    pictures = f", and {len(written) - 1} pictures beside it" if len(written) > 1 else ""
    click.echo(f"Wrote {output}{pictures}.")
