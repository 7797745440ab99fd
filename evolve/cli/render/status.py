"""The status of a run on a terminal: fields, a bar, and its newest attempts."""

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kbevolve.archive.formatting import as_times, duration_words, published_words, time_words, verdict_words
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Verdict
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE, counts_words
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.runs.status import RunStatus


def status_fields(status: RunStatus) -> dict[str, str | Text]:
    """Names and values."""
    published = status.champion or (status.best.timing if status.best else None)
    best: str | Text = "none yet"
    if published is not None:
        best = Text(published_words(status.champion, status.best), style="bold green")
        best.append(
            f"  {time_words(published.time_ms)}, eager {time_words(published.reference_ms)}", "not bold default"
        )
        best.append(f"  {status.kernel}", "not bold default")
    rate = f", {status.kernels_per_hour:.0f} kernels per hour" if status.kernels_per_hour else ""
    tokens = f"{status.prompt_tokens:,} sent, {status.completion_tokens:,} received"
    waiting = f"; {status.unjudged} not judged yet" if status.unjudged else ""
    return {
        "run": status.run,
        "problem": status.problem,
        "device": status.device,
        "state": state_words(status),
        "generation": f"{status.generation} of {status.generations}",
        "best": best,
        "kernels": (counts_words(_plain(status.verdicts)) or "none judged yet") + waiting,
        "attempts": counts_words(_plain(status.attempts)),
        "time": f"{duration_words(status.wall_seconds)} over all sessions{rate}",
        "tokens": tokens if status.prompt_tokens or status.completion_tokens else "",
    }


def state_words(status: RunStatus) -> str:
    """Whether it goes on, and if not, why it stopped."""
    if status.process is not None:
        return f"process {status.process} works on it, last result {duration_words(status.silent_seconds)} ago"
    if status.stopped is not None:
        return f"stopped: {status.stopped.value}"
    return "no process of yours works on it here; it was killed: `kbevolve resume` continues it"


def status_view(status: RunStatus) -> RenderableType:
    """The whole display of `kbevolve watch`."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in status_fields(status).items():
        if value:
            grid.add_row(name, value if isinstance(value, Text) else Text(printable(value)))
    total = max(status.generations, 1)
    grid.add_row("", ProgressBar(total=total, completed=min(status.generation, total), width=48))
    return Group(grid, *map(_attempt_line, status.recent))


def _attempt_line(entry: OutlineEntry) -> Text:
    line = Text(
        f"g{entry.generation:<3} island {entry.island}  {entry.operator.value:<8}", no_wrap=True, overflow="ellipsis"
    )
    if entry.verdict is Verdict.CORRECT:
        line.append(f"{as_times(entry.speedup):<27}" if entry.speedup else " " * 27, "green")
    elif entry.verdict is not None:
        line.append(f"{verdict_words(entry.verdict):<27}", VERDICT_STYLE[entry.verdict])
    else:
        line.append(f"{'judging …' if entry.kernel else entry.state.value:<27}", "dim")
    return line.append(printable(" ".join(entry.words.split())), "dim")


def _plain(counts: Mapping[str, int]) -> dict[str, int]:
    return {name.replace("_", " "): count for name, count in counts.items()}
