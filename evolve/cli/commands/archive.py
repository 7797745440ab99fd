"""`kbevolve archive`: look into the archive. Nothing here writes, runs a kernel or imports torch."""

from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from kbevolve.archive.formatting import CONFIRMED, as_times, interval_words, speedup_words, time_words
from kbevolve.archive.lineage import lineage as line_of
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Kernel, Run, Timing, Verdict
from kbevolve.archive.run_queries import RunSummary
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.evolve.cli.completion import complete_either, complete_kernels, complete_problems, complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render import kernel as views
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.tables import Column, print_fields, print_table
from kbevolve.evolve.cli.render.throughput import print_throughput

_RUN_COLUMNS: tuple[Column[RunSummary], ...] = (
    Column("run", lambda one: one.run.id),
    Column("problem", lambda one: one.run.problem_name),
    Column("gen", lambda one: one.generations, right=True),
    Column("kernels", lambda one: one.evaluated, right=True, least_width=96),
    Column("correct", lambda one: one.correct, right=True, least_width=66),
    Column("best", lambda one: _best_words(one), right=True),
    Column("best kernel", lambda one: one.best_kernel or "", least_width=112),
    Column("state", lambda one: views.stop_words(one.stopped), least_width=78),
    Column("device", lambda one: one.run.device, least_width=112, flexible=True),
)


@click.group(epilog="Example: kbevolve archive ls")
def archive() -> None:
    """Look into the archive: runs, kernels and lineages.

    Name a kernel or a run by its id or by the start of it.
    """


@archive.command(
    short_help="List runs, or the kernels of one run.", epilog="Example: kbevolve archive ls latest --best -n 10"
)
@click.argument("which", required=False, metavar="[RUN]", shell_complete=complete_runs)
@click.option(
    "--best",
    is_flag=True,
    help="The correct kernels of RUN, the best first, then by the lower ends of their intervals; the reference last.",
)
@click.option(
    "--verdict",
    type=click.Choice([verdict.name.lower().replace("_", "-") for verdict in Verdict]),
    help="The children of RUN with this verdict.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Lines at most.")
@json_option
@archive_option
def ls(
    which: str | None, best: bool, verdict: str | None, limit: int | None, as_json: bool, archive_path: Path
) -> None:
    """List all runs, newest first; or, with RUN (an id, or latest), its children in order of creation."""
    if which is None and (best or verdict):
        raise UsageError("--best and --verdict choose children of a run; name it: kbevolve archive ls latest --best")
    with Archive(archive_path, read_only=True) as store:
        if which is not None:
            _list_children(store, store.runs.get(which), best=best, verdict=verdict, limit=limit, as_json=as_json)
            return
        summaries = store.runs.summaries()[:limit]
    if as_json:
        print_json(summaries)
    elif summaries:
        print_table(Console(), _RUN_COLUMNS, summaries)
    else:
        raise ArchiveError("no run in this archive yet; start one: kbevolve run --problem L1/matmul")


@archive.command(
    short_help="Show a kernel or a run in full.", epilog="Example: kbevolve archive show 3f2a --source > kernel.py"
)
@click.argument("which", metavar="KERNEL|RUN", shell_complete=complete_either)
@click.option("--source", "only_source", is_flag=True, help="Only the kernel's source.")
@click.option("--conversation", is_flag=True, help="Also the prompts and replies of the model.")
@json_option
@archive_option
def show(which: str, only_source: bool, conversation: bool, as_json: bool, archive_path: Path) -> None:
    """Show a kernel (attempt, idea, verdict, contests, source) or a run (settings, counts, best kernel)."""
    with Archive(archive_path, read_only=True) as store:
        found = store.find(which)
        if isinstance(found, Run):
            if only_source or conversation:
                raise UsageError(f"{which} is a run; --source and --conversation are for kernels")
            summary = store.runs.summary(found)
            if as_json:
                print_json(summary)
            else:
                print_fields(Console(), views.run_fields(summary, store.runs.tokens(found.id)))
        elif only_source:
            views.print_source(Console(), found.source)
        else:
            _show_kernel(store, found, conversation=conversation, as_json=as_json)


@archive.command(short_help="Show the ancestors of a kernel.", epilog="Example: kbevolve archive lineage 3f2a")
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
    if as_json:
        print_json(line)
    else:
        views.print_lineage(Console(), line, evaluations, ideas)


def _kernel(store: Archive, which: str) -> Kernel:
    """A kernel, or the best one of a run."""
    found = store.find(which)
    if isinstance(found, Kernel):
        return found
    best = store.runs.summary(found).best_kernel
    if best is None:
        raise ArchiveError(f"run {found.id} has no correct kernel yet")
    return store.kernels.get(best)


@archive.command(short_help="Show what changed between two kernels.", epilog="Example: kbevolve archive diff 3f2a")
@click.argument("first", metavar="KERNEL", shell_complete=complete_kernels)
@click.argument("second", metavar="[OTHER]", required=False, shell_complete=complete_kernels)
@archive_option
def diff(first: str, second: str | None, archive_path: Path) -> None:
    """Show what changed from the parent of KERNEL to KERNEL, or from KERNEL to OTHER."""
    with Archive(archive_path, read_only=True) as store:
        if second is None:
            newer = store.kernels.get(first)
            older = store.kernels.get(_parent(store, newer))
        else:
            older, newer = store.kernels.get(first), store.kernels.get(second)
        labels = {}
        for kernel in (older, newer):
            measured = store.kernels.evaluations(kernel.id)
            labels[kernel.id] = speedup_words(measured[0]) if measured and measured[0].timing.speedup else ""
    views.print_source(Console(), views.unified_diff(older, newer, labels), "diff")


@archive.command(
    short_help="Show the throughput of a run.", epilog="Example: kbevolve archive stats --problem L1/matmul"
)
@click.option("--run", "run_id", metavar="RUN", shell_complete=complete_runs, help="The run.  [default: the latest]")
@click.option(
    "--problem",
    "problem_name",
    metavar="NAME",
    shell_complete=complete_problems,
    help="The latest run of this problem.",
)
@json_option
@archive_option
def stats(run_id: str | None, problem_name: str | None, as_json: bool, archive_path: Path) -> None:
    """Show the throughput of a run: children per hour, seconds in each phase, and the busy share of its devices.

    With --json, one object: times in seconds, shares from 0 to 1.
    """
    if run_id and problem_name:
        raise UsageError(f"both --run {run_id} and --problem {problem_name}: give one of them")
    with Archive(archive_path, read_only=True) as store:
        run = store.runs.latest_of(problem_name) if problem_name else store.runs.get(run_id or "latest")
        births, evaluations = store.runs.births(run.id, texts=False), store.runs.evaluations(run.id)
        throughput = throughput_of(run, births, evaluations.values())
    if as_json:
        print_json(throughput)
    else:
        print_throughput(Console(), throughput)


def _best_words(summary: RunSummary) -> str:
    if not summary.best_speedup:
        return ""
    return as_times(summary.best_speedup) + (f" {CONFIRMED}" if summary.champion else "")


def _list_children(
    store: Archive, run: Run, *, best: bool, verdict: str | None, limit: int | None, as_json: bool
) -> None:
    evaluations, ideas = store.runs.evaluations(run.id), store.runs.ideas(run.id)
    children = [(birth, evaluations.get(birth.kernel or "")) for birth in store.runs.births(run.id, texts=False)]
    if verdict or best:
        wanted = Verdict[verdict.replace("-", "_").upper()] if verdict else Verdict.CORRECT
        # These are lists of kernels, not of attempts: a kernel that was proposed again is shown once.
        first = {
            birth.kernel: (birth, found) for birth, found in reversed(children) if found and found.verdict is wanted
        }
        children = list(reversed(first.values()))
    title = store.runs.summary(run).best_kernel
    confirmed = {one.kernel: one for one in store.runs.confirmations(run.id)}

    def published(birth: Birth, evaluation: Evaluation | None) -> Timing | Confirmation | None:
        return confirmed.get(birth.kernel or "") or (evaluation.timing if evaluation else None)

    def rank(child: tuple[Birth, Evaluation | None]) -> tuple[int, float]:
        group = 0 if child[0].kernel == title else 2 if child[0].kernel == reference else 1
        return group, -(getattr(published(*child), "speedup_low", None) or 0.0)

    if best:
        failed, reference = store.runs.failed(run.id), store.runs.reference(run)
        children = sorted((child for child in children if child[0].kernel not in failed), key=rank)
    children = children[:limit]
    if as_json:
        print_json(
            [
                {
                    "birth": birth,
                    "evaluation": evaluation,
                    "confirmation": confirmed.get(birth.kernel or ""),
                    "best": birth.kernel is not None and birth.kernel == title,
                }
                for birth, evaluation in children
            ]
        )
        return
    columns: list[Column[tuple[Birth, Evaluation | None]]] = [
        Column("kernel", lambda one: one[0].kernel or ""),
        Column("gen", lambda one: one[0].generation, right=True),
        Column("isl", lambda one: one[0].island, right=True),
        Column("operator", lambda one: one[0].operator.value),
        Column("verdict", lambda one: views.outcome(*one).append(", best" if one[0].kernel == title else "")),
        Column("speedup", lambda one: _known(published(*one), "speedup", as_times), right=True),
        Column("interval", lambda one: _interval(published(*one)), least_width=100),
        Column("time", lambda one: _known(published(*one), "time_ms", time_words), right=True, least_width=112),
        Column("parent", lambda one: one[0].parents[0] if one[0].parents else "", least_width=112),
        Column("what", lambda one: views.what(one[0], ideas), flexible=True),
    ]
    print_table(Console(), columns, children)


def _known(published: Timing | Confirmation | None, name: str, words: Callable[[float], str]) -> str:
    value = getattr(published, name, None)
    return words(value) if value else ""


def _interval(published: Timing | Confirmation | None) -> str:
    if published is None or published.speedup_low is None or published.speedup_high is None:
        return ""
    words = interval_words(published.speedup_low, published.speedup_high)
    return f"{words} {CONFIRMED}" if isinstance(published, Confirmation) else words


def _show_kernel(store: Archive, kernel: Kernel, *, conversation: bool, as_json: bool) -> None:
    births, evaluations = store.kernels.births(kernel.id), store.kernels.evaluations(kernel.id)
    confirmations = store.kernels.confirmations(kernel.id)
    ideas = store.runs.ideas(births[0].run) if births else {}
    if as_json:
        idea = ideas.get(births[0].idea or "") if births else None
        facts = {"kernel": kernel, "births": births, "idea": idea, "evaluations": evaluations}
        print_json({**facts, "confirmations": confirmations})
        return
    console = Console()
    problem = store.runs.get(births[0].run).problem_name if births else ""
    print_fields(console, views.kernel_fields(kernel, births, ideas, problem))
    for evaluation in evaluations:
        click.echo()
        print_fields(console, views.evaluation_fields(evaluation))
        if evaluation.profile is not None:
            print_profile(console, evaluation.profile)
    for confirmation in confirmations:
        click.echo()
        print_fields(console, views.confirmation_fields(confirmation))
    if conversation:
        for birth in births:
            if birth.prompt:
                click.echo(f"\n---- {birth.id}: prompt to {birth.model}\n{birth.prompt}")
            if birth.reply:
                click.echo(f"\n---- reply\n{birth.reply}")
    click.echo()
    views.print_source(console, kernel.source)


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
