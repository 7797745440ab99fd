"""`kbevolve ideas`: ideas and techniques with their gains, of one run or of the whole archive."""

from pathlib import Path

import click
from rich.text import Text

from kbevolve.archive.formatting import as_times, interval_words, percent_words
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option_with
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, note, print_table, say
from kbevolve.evolve.state.idea_report import EXHAUSTED, PAID, IdeaScore, TechniqueScore, of_archive, of_run

#: Ideas in the list without -n.
SHOWN = 20

_STATE_STYLES = {PAID: "green", EXHAUSTED: "red"}
_IDEA_COLUMNS: tuple[Column[IdeaScore], ...] = (
    Column("idea", lambda one: one.title, flexible=True),
    Column("technique", lambda one: one.technique),
    Column("against", lambda one: one.against or "–", least_width=96),
    Column("problem", lambda one: one.problem, least_width=112),
    Column("children", lambda one: one.children, right=True),
    Column("correct", lambda one: one.correct, right=True),
    Column("gain", lambda one: as_times(one.gain.factor) if one.gain else "–", right=True),
    Column("interval", lambda one: interval_words(one.gain.low, one.gain.high) if one.gain else "–", least_width=112),
    Column("best kernel", lambda one: one.kernel or "–", least_width=96),
    Column("state", lambda one: Text(one.state, style=_STATE_STYLES.get(one.state, ""))),
)
_TECHNIQUE_COLUMNS: tuple[Column[TechniqueScore], ...] = (
    Column("technique", lambda one: one.technique),
    Column("against", lambda one: one.against or "–"),
    Column("problems", lambda one: one.problems, right=True, least_width=96),
    Column("attempts", lambda one: one.births, right=True),
    Column("correct", lambda one: one.correct, right=True),
    Column("mean gain", lambda one: as_times(one.mean_gain) if one.mean_gain else "–", right=True),
    Column("best", lambda one: as_times(one.best_gain) if one.best_gain else "–", right=True),
    Column("validity", lambda one: percent_words(one.validity), right=True),
    Column("credit", lambda one: percent_words(one.credit, 1), right=True),
)


@click.command(epilog="Example: kbevolve ideas --run latest -n 10")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="A run, by the start of its id, or latest.  [default: all runs]",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), help=f"Ideas at most.  [default: {SHOWN}]")
@json_option_with("Print JSON for scripts, with all ideas unless -n is given.")
@archive_option
def ideas(run_id: str | None, limit: int | None, as_json: bool, archive_path: Path) -> None:
    """List ideas and techniques with their gains, the best first.

    A gain is a child's speed over its parent's. Credit is the expected gain of a technique's next child; losses and
    failures count as zero; validity is the expected share of correct kernels. With --run, also the exhausted ideas with
    reasons, and the lessons in the next prompts.
    """
    with Archive(archive_path, read_only=True) as archive:
        run = archive.runs.get(run_id) if run_id else None
        found = of_run(archive, run) if run else of_archive(archive)
    if as_json:
        print_json({"run": run.id if run else None, **found.as_json(limit)})
        return
    console = Console()
    if not found.ideas:
        problem = run.problem_name if run else "L1/matmul"
        where = f"Run {run.id}" if run else archive_path
        words = f"{where} has no ideas recorded; a model proposes them: kbevolve run --problem {problem} --model NAME"
        say(console, words)
        return
    shown = limit or SHOWN
    print_table(console, _IDEA_COLUMNS, found.ideas[:shown])
    if len(found.ideas) > shown:
        note(console, f"… and {len(found.ideas) - shown} more; -n {len(found.ideas)} lists all.")
    console.print()
    print_table(console, _TECHNIQUE_COLUMNS, found.techniques)
    for heading, lines in (("Exhausted", found.exhausted), ("Lessons", found.lessons)):
        if lines:
            say(console, f"\n{heading}")
        for line in lines:
            say(console, f"- {line}")
