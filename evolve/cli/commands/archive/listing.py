"""`kbevolve archive ls`: runs, or the kernels of one run."""

from collections.abc import Callable
from pathlib import Path

import click

from kbevolve.archive.formatting import CONFIRMED, as_times, interval_words, time_words
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Run, Timing, Verdict
from kbevolve.archive.run_queries import RunSummary
from kbevolve.archive.standings import ORDER_WORDS, REFERENCE_WORDS, place
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render import kernel as views
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.tables import Column, explain, print_table

_RUN_COLUMNS: tuple[Column[RunSummary], ...] = (
    Column("run", lambda one: one.run.id),
    Column("problem", lambda one: one.run.problem_name, flexible=True),
    Column("gen", lambda one: one.generations, right=True),
    Column("kernels", lambda one: one.evaluated, right=True, least_width=96),
    Column("correct", lambda one: one.correct, right=True, least_width=66),
    Column("best", lambda one: _best_words(one), right=True),
    Column("best kernel", lambda one: one.best_kernel or "", least_width=112),
    Column("state", lambda one: views.stop_words(one.stopped), least_width=78),
    Column("device", lambda one: one.run.device, least_width=112, flexible=True),
)


@click.command(
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
@click.option("--tag", metavar="NAME", help="The runs with this tag (`kbevolve archive note`).")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Lines at most.")
@json_option
@archive_option
def ls(
    which: str | None,
    best: bool,
    verdict: str | None,
    tag: str | None,
    limit: int | None,
    as_json: bool,
    archive_path: Path,
) -> None:
    """List all runs, newest first; or, with RUN (an id, or latest), its children in order of creation."""
    if which is None and (best or verdict):
        raise UsageError("--best and --verdict choose children of a run; name it: kbevolve archive ls latest --best")
    if which is not None and tag:
        raise UsageError("--tag chooses runs; leave out RUN: kbevolve archive ls --tag NAME")
    with Archive(archive_path, read_only=True) as store:
        if which is not None:
            list_children(store, store.runs.get(which), best=best, verdict=verdict, limit=limit, as_json=as_json)
            return
        tagged = store.notes.tagged(tag) if tag else None
        summaries = [one for one in store.runs.summaries() if tagged is None or one.run.id in tagged][:limit]
    if as_json:
        print_json(summaries)
    elif summaries:
        print_table(Console(), _RUN_COLUMNS, summaries)
    elif tag:
        name = tag.removeprefix("#")
        raise ArchiveError(f"no run has the tag {name!r}; give one: kbevolve archive note RUN '#{name}'")
    else:
        raise ArchiveError("no run in this archive yet; start one: kbevolve run --problem L1/matmul")


def _best_words(summary: RunSummary) -> str:
    if not summary.best_speedup:
        return ""
    return as_times(summary.best_speedup) + (f" {CONFIRMED}" if summary.champion else "")


def list_children(
    store: Archive, run: Run, *, best: bool, verdict: str | None, limit: int | None, as_json: bool
) -> None:
    """Print children of a run: all in order of creation, those of one verdict, or the best first."""
    evaluations, ideas = store.runs.evaluations(run.id), store.runs.ideas(run.id)
    children = [(birth, evaluations.get(birth.kernel or "")) for birth in store.runs.births(run.id, texts=False)]
    if verdict or best:
        wanted = Verdict[verdict.replace("-", "_").upper()] if verdict else Verdict.CORRECT
        # These are lists of kernels, not of attempts: a kernel that was proposed again is shown once.
        first = {
            birth.kernel: (birth, found) for birth, found in reversed(children) if found and found.verdict is wanted
        }
        children = list(reversed(first.values()))
    title, reference = store.runs.summary(run).best_kernel, store.runs.reference(run)
    confirmed = {one.kernel: one for one in store.runs.confirmations(run.id)}

    def published(birth: Birth, evaluation: Evaluation | None) -> Timing | Confirmation | None:
        return confirmed.get(birth.kernel or "") or (evaluation.timing if evaluation else None)

    def rank(child: tuple[Birth, Evaluation | None]) -> tuple[int, float]:
        low = getattr(published(*child), "speedup_low", None)
        return place(child[0].kernel, low, best=title, reference=reference)

    if best:
        failed = store.runs.failed(run.id)
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
        Column("gen", lambda one: one[0].generation, right=True, least_width=best * 98),
        Column("isl", lambda one: one[0].island, right=True, least_width=best * 99),
        Column("operator", lambda one: one[0].operator.value, least_width=best * 100),
        Column("verdict", lambda one: views.outcome(*one).append(", best" if one[0].kernel == title else "")),
        Column("speedup", lambda one: _known(published(*one), "speedup", as_times), right=True),
        Column("interval", lambda one: _interval(published(*one)), least_width=60 if best else 100),
        Column("time", lambda one: _known(published(*one), "time_ms", time_words), right=True, least_width=112),
        Column("parent", lambda one: one[0].parents[0] if one[0].parents else "", least_width=112),
        Column("what", lambda one: views.what(one[0], ideas), flexible=True),
    ]
    if best:
        rank_of = {birth.id: str(number) for number, (birth, _) in enumerate(children, start=1)}
        columns[4] = Column("rank", lambda one: "best" if one[0].kernel == title else rank_of[one[0].id], right=True)
    console = Console()
    print_table(console, columns, children)
    if best and console.is_terminal:
        has_reference = any(birth.kernel == reference for birth, _ in children)
        explain(console, " ".join([ORDER_WORDS, REFERENCE_WORDS] if has_reference else [ORDER_WORDS]))


def _known(published: Timing | Confirmation | None, name: str, words: Callable[[float], str]) -> str:
    value = getattr(published, name, None)
    return words(value) if value else ""


def _interval(published: Timing | Confirmation | None) -> str:
    if published is None or published.speedup_low is None or published.speedup_high is None:
        return ""
    words = interval_words(published.speedup_low, published.speedup_high)
    return f"{words} {CONFIRMED}" if isinstance(published, Confirmation) else words
