"""`kbevolve archive lineage` and `kbevolve archive diff`: how a kernel came to be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kbevolve.archive.formatting import speedup_words
from kbevolve.archive.lineage import Line
from kbevolve.archive.lineage import lineage as line_of
from kbevolve.archive.records import Birth, Evaluation, Idea, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.evolve.cli.completion import complete_either, complete_kernels, complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render import kernel as views
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json


@click.command(short_help="Show the ancestors of a kernel.", epilog="Example: kbevolve archive lineage 3f2a")
@click.argument("which", metavar="KERNEL|RUN", shell_complete=complete_either)
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run, if several created the kernel.  [default: the first]",
)
@json_option
@archive_option
def lineage(which: str, run_id: str | None, as_json: bool, archive_path: Path) -> None:
    """Show the ancestors of a kernel, or of a run's best one, back to a starting kernel, with speedups and ideas."""
    with Archive(archive_path, read_only=True) as store:
        kernel = _kernel(store, which)
        run = store.runs.get(run_id) if run_id else store.runs.get(_birth(store, kernel).run)
        line = line_of(kernel.id, store.runs.births(run.id, texts=False))
        if not line:
            raise ArchiveError(f"kernel {kernel.id} was not created in run {run.id}; leave out --run to find its run")
        evaluations, ideas = store.runs.evaluations(run.id), store.runs.ideas(run.id)
        made = [one for one in store.runs.confirmations(run.id) if one.kernel == kernel.id]
    if as_json:
        print_json(_tree(line, evaluations, ideas))
    else:
        views.print_lineage(Console(), line, evaluations, ideas, made[-1] if made else None)


def _tree(line: Line, evaluations: Mapping[str, Evaluation], ideas: Mapping[str, Idea]) -> list[dict[str, Any]]:
    """A lineage for scripts; a gain is the kernel's speed over that of its parent."""
    return [
        {
            "birth": one.birth,
            "idea": ideas.get(one.birth.idea or ""),
            "evaluation": evaluations.get(one.birth.kernel or ""),
            "gain": views.gain_over_parent(one.birth, evaluations),
            "branches": [_tree(branch, evaluations, ideas) for branch in one.branches],
            "met": one.met,
        }
        for one in line
    ]


def _kernel(store: Archive, which: str) -> Kernel:
    """A kernel, or the best one of a run."""
    found = store.find(which)
    if isinstance(found, Kernel):
        return found
    best = store.runs.summary(found).best_kernel
    if best is None:
        raise ArchiveError(f"run {found.id} has no correct kernel yet")
    return store.kernels.get(best)


@click.command(short_help="Show what changed between two kernels.", epilog="Example: kbevolve archive diff 3f2a")
@click.argument("first", metavar="KERNEL", shell_complete=complete_kernels)
@click.argument("second", metavar="[OTHER]", required=False, shell_complete=complete_kernels)
@json_option
@archive_option
def diff(first: str, second: str | None, as_json: bool, archive_path: Path) -> None:
    """Show what changed from the parent of KERNEL to KERNEL, or from KERNEL to OTHER."""
    with Archive(archive_path, read_only=True) as store:
        if second is None:
            newer = store.kernels.get(first)
            older = store.kernels.get(_parent(store, newer))
        else:
            older, newer = store.kernels.get(first), store.kernels.get(second)
        measured = {one.id: next(iter(store.kernels.evaluations(one.id)), None) for one in (older, newer)}
    labels = {
        name: f"{speedup_words(one)} (first evaluation)" if one and one.timing.speedup else ""
        for name, one in measured.items()
    }
    text = views.unified_diff(older, newer, labels)
    if as_json:
        print_json({"older": _side(older, measured), "newer": _side(newer, measured), "diff": text})
    else:
        views.print_source(Console(), text, "diff")


def _side(kernel: Kernel, measured: Mapping[str, Evaluation | None]) -> dict[str, Any]:
    found = measured[kernel.id]
    return {"kernel": kernel.id, "speedup": found.timing.speedup if found else None, "source": kernel.source}


def _birth(store: Archive, kernel: Kernel) -> Birth:
    births = store.kernels.births(kernel.id)
    if not births:
        raise ArchiveError(f"kernel {kernel.id} has no lineage in {store.path}; it was only evaluated")
    return births[0]


def _parent(store: Archive, kernel: Kernel) -> str:
    """The main parent in the first attempt that has one."""
    for birth in store.kernels.births(kernel.id):
        if birth.parents and birth.parents[0] != kernel.id:
            return birth.parents[0]
    raise UsageError(f"{kernel.id} is a starting kernel without a parent; name two: kbevolve archive diff KERNEL OTHER")
