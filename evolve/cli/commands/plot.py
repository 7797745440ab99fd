"""`kbevolve plot`: draw best-so-far over the children, of one run or of several together."""

import json
from pathlib import Path
from typing import Any

import click

from kbevolve.archive.records import Run
from kbevolve.archive.report.curves import Curve, curve_of
from kbevolve.archive.report.figures import save_best_so_far
from kbevolve.archive.report.measures import MEASURES, measured
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.configs.prices import Prices, read_prices
from kbevolve.evolve.cli.completion import complete_problems, complete_runs
from kbevolve.evolve.cli.options import archive_option, figure_option, json_option
from kbevolve.evolve.cli.render.json import print_json


@click.command(epilog="Example: kbevolve plot --problem L1/matmul -o matmul.svg")
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="ID",
    shell_complete=complete_runs,
    help="A run; again for several.  [default: the latest]",
)
@click.option(
    "--problem",
    "problem_name",
    metavar="NAME",
    shell_complete=complete_problems,
    help="All runs of this problem on the newest one's device.",
)
@click.option(
    "--by",
    type=click.Choice(list(MEASURES)),
    default="children",
    show_default=True,
    help="What is drawn below: children, or what they had cost.",
)
@figure_option("best.png")
@json_option
@archive_option
def plot(
    run_ids: tuple[str, ...], problem_name: str | None, by: str, output: Path, as_json: bool, archive_path: Path
) -> None:
    """Draw the best kernel so far over the children evaluated, time, tokens or dollars.

    One run shows its islands, its failures and what made each step; several runs show their best lines together. With
    --json, also the numbers: every kernel, and every step of the best.
    """
    with Archive(archive_path, read_only=True) as archive:
        runs = _runs(archive, run_ids, problem_name)
        curves = [
            measured(curve_of(archive, run), archive.runs.births(run.id, texts=False), by, _prices(run)) for run in runs
        ]
    save_best_so_far(curves, output, device=runs[0].device.replace("/", ", "), by=by)
    if as_json:
        print_json({"file": output, "by": by, "runs": [_numbers(one) for one in curves]})
        return
    drawn = runs[0].id if len(runs) == 1 else f"{len(runs)} runs of {runs[0].problem_name}"
    click.echo(f"Wrote {output}: {drawn}.")


def _numbers(curve: Curve) -> dict[str, Any]:
    """What is drawn; `count` is that of the children evaluated, 0 for starting kernels, or the measure of --by."""
    names = ("speedup", "speedup_low", "speedup_high")
    points = [
        {"count": one.count, "kernel": one.evaluation.kernel, "island": one.birth.island}
        | {"verdict": one.evaluation.verdict, **{name: getattr(one.evaluation.timing, name) for name in names}}
        for one in curve.points
    ]
    steps = [
        {"count": one.point.count, "kernel": one.point.evaluation.kernel, "gain": one.gain, "what": one.words}
        for one in curve.steps
    ]
    return {"run": curve.run.id, "published": curve.published, "kernels": points, "steps": steps}


def _prices(run: Run) -> Prices:
    """The prices of a run's models: kbevolve's, after those of the file that the run names."""
    own = json.loads(run.settings).get("budget", {}).get("prices")
    return read_prices(Path(own) if own and Path(own).is_file() else None)


def _runs(archive: Archive, run_ids: tuple[str, ...], problem_name: str | None) -> list[Run]:
    """The runs to draw, oldest first; times of two devices or problems are never drawn in one figure."""
    if run_ids and problem_name:
        raise UsageError("--run and --problem both choose the runs; give one of them")
    if problem_name is not None:
        return archive.runs.like(archive.runs.latest_of(problem_name))
    runs = list({run.id: run for run in (archive.runs.get(run_id) for run_id in run_ids or ("latest",))}.values())
    for run in runs[1:]:
        for what in ("problem", "device"):
            if getattr(run, what) != getattr(runs[0], what):
                raise UsageError(
                    f"{runs[0].id} and {run.id} are of different {what}s ({_name(runs[0], what)}, {_name(run, what)}); "
                    "speedups compare on one problem and one device only"
                )
    return runs


def _name(run: Run, what: str) -> str:
    return f"{run.problem_name} with text {run.problem}" if what == "problem" else run.device
