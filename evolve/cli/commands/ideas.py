"""`kbevolve ideas`: ideas and techniques with their gains, of one run or of the whole archive."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import as_times, interval_words
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.options import archive_option
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, print_table
from kbevolve.evolve.state.idea_report import IdeaScore, TechniqueScore, of_archive, of_run

#: Ideas in the list without -n.
SHOWN = 20

_IDEA_COLUMNS = (
    Column(name="idea", flexible=True),
    Column(name="technique"),
    Column(name="against", least_width=96),
    Column(name="problem", least_width=112),
    Column(name="children", right=True),
    Column(name="correct", right=True),
    Column(name="gain", right=True),
    Column(name="interval", right=True, least_width=112),
    Column(name="best kernel", least_width=96),
    Column(name="state"),
)
_TECHNIQUE_COLUMNS = (
    Column(name="technique"),
    Column(name="against"),
    Column(name="problems", right=True, least_width=96),
    Column(name="attempts", right=True),
    Column(name="correct", right=True),
    Column(name="mean gain", right=True),
    Column(name="best", right=True),
    Column(name="validity", right=True),
    Column(name="credit", right=True),
)


@click.command(epilog="Example: kbevolve ideas --run latest -n 10")
@click.option("--run", "run_id", metavar="RUN", help="A run, by the start of its id, or latest.  [default: all runs]")
@click.option("-n", "--limit", type=click.IntRange(min=1), help=f"Ideas at most.  [default: {SHOWN}]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts, with all ideas unless -n is given.")
@archive_option
def ideas(run_id: str | None, limit: int | None, as_json: bool, archive_path: Path) -> None:
    """List ideas and techniques with their gains, the best first.

    A gain is a child's speed over its parent's. Credit is the expected gain of a technique's next child; losses and
    failures count as zero; validity is the expected share of correct kernels. With --run, also the exhausted ideas with
    reasons, and the lessons in the next prompts.
    """
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(run_id) if run_id else None
        found = of_run(archive, run) if run else of_archive(archive)
    if as_json:
        print_json({"run": run.id if run else None, **found.as_json(limit)})
        return
    console = Console()
    if not found.ideas:
        where = f"Run {run.id}" if run else archive_path
        words = f"{where} has no ideas recorded; a model proposes them: kbevolve run --problem L1/matmul --model NAME"
        console.print(Text(words), soft_wrap=True)
        return
    print_table(console, _IDEA_COLUMNS, [_idea_row(one) for one in found.ideas[: limit or SHOWN]])
    hidden = len(found.ideas) - (limit or SHOWN)
    if hidden > 0:
        console.print(Text(f"… and {hidden} more; -n {len(found.ideas)} lists all.", style="dim"))
    console.print()
    print_table(console, _TECHNIQUE_COLUMNS, [_technique_row(one) for one in found.techniques])
    _print_lines(console, "Exhausted", found.exhausted)
    _print_lines(console, "Lessons", found.lessons)


def _idea_row(score: IdeaScore) -> Sequence[Text | str]:
    gain = score.gain
    style = {"paid": "green", "exhausted": "red"}.get(score.state, "")
    return (
        score.title,
        score.technique,
        score.against or "–",
        score.problem,
        str(score.children),
        str(score.correct),
        as_times(gain.factor) if gain else "–",
        interval_words(gain.low, gain.high) if gain else "–",
        score.kernel or "–",
        Text(score.state, style=style),
    )


def _technique_row(score: TechniqueScore) -> Sequence[Text | str]:
    return (
        score.technique,
        score.against or "–",
        str(score.problems),
        str(score.births),
        str(score.correct),
        as_times(score.mean_gain) if score.mean_gain else "–",
        as_times(score.best_gain) if score.best_gain else "–",
        f"{score.validity:.0%}",
        f"{score.credit:+.1%}",
    )


def _print_lines(console: Console, heading: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(Text(f"\n{heading}"))
    for line in lines:
        console.print(Text(f"- {line}"), soft_wrap=True)
