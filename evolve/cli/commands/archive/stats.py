"""`kbevolve archive stats`: the throughput of a run."""

from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.completion import complete_problems, complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.throughput import print_throughput


@click.command(short_help="Show the throughput of a run.", epilog="Example: kbevolve archive stats --problem L1/matmul")
@click.argument("which", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option("--run", "run_id", metavar="RUN", shell_complete=complete_runs, help="The same as the argument RUN.")
@click.option(
    "--problem",
    "problem_name",
    metavar="NAME",
    shell_complete=complete_problems,
    help="The latest run of this problem.",
)
@json_option
@archive_option
def stats(which: str | None, run_id: str | None, problem_name: str | None, as_json: bool, archive_path: Path) -> None:
    """Show the throughput of a run, else of the latest one.

    That is children per hour, seconds in each phase, and the busy share of its devices.

    With --json, one object: times in seconds, shares from 0 to 1.
    """
    named = [one for one in (which, run_id, problem_name) if one]
    if len(named) > 1:
        raise UsageError(f"both {named[0]} and {named[1]} name a run; give one of them")
    with Archive(archive_path, read_only=True) as store:
        run = store.runs.latest_of(problem_name) if problem_name else store.runs.get(which or run_id or "latest")
        births, evaluations = store.runs.births(run.id, texts=False), store.runs.evaluations(run.id)
        throughput = throughput_of(run, births, evaluations.values(), sessions=store.runs.wall_seconds(run.id))
    if as_json:
        print_json(throughput)
    else:
        print_throughput(Console(), throughput)
