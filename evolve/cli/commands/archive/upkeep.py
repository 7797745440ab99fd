"""`kbevolve archive note`, `check` and `rm-run`: keep an archive whole, and in order."""

import sys
from pathlib import Path

import click

from kbevolve.archive.formatting import counted
from kbevolve.archive.run_queries import RunSummary
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.completion import complete_either, complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.kernel import stop_words
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.runs.lock import lock_holder, run_lock


@click.command(
    short_help="Write a note about a run or a kernel, or read them.",
    epilog="Example: kbevolve archive note latest 'quiet machine, driver 580 #baseline'",
)
@click.argument("which", metavar="KERNEL|RUN", shell_complete=complete_either)
@click.argument("text", required=False)
@json_option
@archive_option
def note(which: str, text: str | None, as_json: bool, archive_path: Path) -> None:
    """Write a note about a run or a kernel; without TEXT, print its notes.

    A word that begins with # is a tag: `kbevolve archive ls --tag baseline` lists the runs that have it. Notes stay: a
    later one is added, none is changed. `show` and the pages of `browse` have them, merge and pack take them along.
    """
    with Archive(archive_path, create=False, read_only=text is None) as store:
        about = store.find(which).id
        if text is not None:
            store.notes.add(about, text)
        found = store.notes.of(about)
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"No notes; write one: kbevolve archive note {which} 'TEXT'")
    else:
        for one in found:
            click.echo(f"{one.at[:16].replace('T', ' ')}  {printable(one.text)}")


@click.command(short_help="Check that the file is whole.", epilog="Example: kbevolve archive check")
@json_option
@archive_option
def check(as_json: bool, archive_path: Path) -> int:
    """Check that the archive is whole, and say what to do if it is not. The exit code is then 1.

    Checked are: the file (SQLite), references between tables, the triggers that refuse changes, lineages (no parent is
    missing, no kernel is its own ancestor), and that the source of each kernel gives its id. Nothing is changed.
    """
    with Archive(archive_path, read_only=True) as store:
        found = store.check()
        counts = _contents(store.runs.summaries())
    if as_json:
        print_json({"archive": archive_path, "whole": not found, "findings": found})
    else:
        for finding in found:
            more = ", …" if finding.count > len(finding.cases) else ""
            click.echo(f"{finding.what}: {finding.count} ({printable(', '.join(finding.cases))}{more})")
        for remedy in dict.fromkeys(finding.remedy for finding in found):
            click.echo(f"What to do: {remedy}")
        if not found:
            click.echo(f"{archive_path} is whole: {counts}.")
    return int(bool(found))


@click.command("rm-run", short_help="Remove a run.", epilog="Example: kbevolve archive rm-run softmax-20261124-0342")
@click.argument("which", metavar="RUN", shell_complete=complete_runs)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@json_option
@archive_option
def rm_run(which: str, yes: bool, as_json: bool, archive_path: Path) -> int:
    """Remove a run with its attempts, and with the kernels and evaluations that no other run uses.

    There is no way back. It is refused while a process works on this run or another one of the archive. The file keeps
    its size and fills the room again; `kbevolve archive pack` writes a smaller one.
    """
    with Archive(archive_path, create=False) as store:
        run = store.runs.get(which)
        with run_lock(store, run):
            # Numbers of rows are given again, and a run that goes on remembers how far it has read.
            for other in store.runs.summaries():
                if other.run != run and (process := lock_holder(store, other.run)):
                    raise UsageError(f"process {process} works on run {other.run.id} of this archive; wait for it")
            if not yes and not _confirmed(store.runs.summary(run)):
                click.echo("Nothing removed.", err=True)
                return 1
            removed = store.remove_run(run)
    if as_json:
        print_json({"run": run.id, "removed": removed})
        return 0
    gone = f"{counted(removed.attempts, 'attempt')}, {counted(removed.kernels, 'kernel')}"
    kept = f"; {counted(removed.kept, 'kernel')} stay for other runs" if removed.kept else ""
    click.echo(f"Removed run {run.id}: {gone}, {counted(removed.evaluations, 'evaluation')}{kept}.")
    return 0


def _confirmed(summary: RunSummary) -> bool:
    run = summary.run
    if not sys.stdin.isatty():
        raise UsageError(f"rm-run removes {run.id} for good and asks first; in a script, answer with --yes")
    state = stop_words(summary.stopped)
    what = f"{run.problem_name}, {counted(summary.births, 'attempt')}, {summary.correct} correct, {state}"
    return click.confirm(f"Remove run {run.id} ({what}) for good?", err=True)


def _contents(summaries: list[RunSummary]) -> str:
    """``3 runs, 120 attempts``."""
    return f"{counted(len(summaries), 'run')}, {counted(sum(one.births for one in summaries), 'attempt')}"
