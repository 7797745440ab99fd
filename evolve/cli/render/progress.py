"""The progress of a run: a live display on a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kbevolve.archive.formatting import (
    as_times,
    confirmed_words,
    duration_words,
    published_words,
    speedup_words,
    time_words,
    verdict_words,
)
from kbevolve.archive.records import Birth, Confirmation, Verdict
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE, count_words
from kbevolve.evolve.search.events import Event, IslandSummary
from kbevolve.evolve.state.totals import RunTotals

#: Children shown under the numbers; more would scroll the numbers out of a small terminal.
RECENT = 6
#: Seconds between two plain lines without news.
QUIET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The constant part of the display."""

    #: e.g. "L1/matmul".
    problem: str
    #: The device in one line.
    device: str
    #: e.g. "tunables, no model" or the model's name.
    proposer: str
    #: Generation to reach.
    generations: int
    #: Kernel id of the reference itself.
    reference: str


class SessionRate:
    """Rate and remaining time of this session; earlier sessions do not count."""

    def __init__(self) -> None:
        self._started = monotonic()
        self._first_generation: int | None = None
        self.judged = 0

    def note(self, event: Event) -> None:
        """Count an event."""
        if self._first_generation is None:
            self._first_generation = event.generation
        if event.done and event.evaluation is not None and not event.remembered:
            self.judged += 1

    def words(self, generation: int, generations: int) -> str:
        """``31 kernels/min, 2:10 left``; no remaining time before the first generation has ended."""
        elapsed = monotonic() - self._started
        words = f"{self.judged / max(elapsed, 1e-9) * 60:.0f} kernels/min"
        done = generation - (self._first_generation or 0)
        if done > 0:
            words += f", {duration_words(elapsed / done * (generations - generation + 1))} left"
        return words


class LiveProgress:
    """A display that is redrawn at every event (not by a clock: a redraw during a timed block would be measured)."""

    def __init__(self, header: Header, console: Console) -> None:
        self.header = header
        self._rate = SessionRate()
        self._recent: deque[Text] = deque(maxlen=RECENT)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        # Judges start before the first event: workers, torch, a cluster.
        self._live.update(Group(self._top(), Text("starting …", style="dim")), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._rate.note(event)
        if event.birth is not None and event.done:
            self._recent.append(_child_line(event.birth, event))
        self._live.update(self._render(event), refresh=True)

    def _render(self, event: Event) -> RenderableType:
        header = self.header
        numbers = Table.grid(padding=(0, 2))
        numbers.add_column(style="dim")
        numbers.add_column()
        numbers.add_row("best", _best_text(event))
        numbers.add_row("islands", _islands_text(event.islands))
        numbers.add_row("kernels", Text(count_words(event.totals)))
        numbers.add_row("proposer", Text(header.proposer + _token_words(event.totals)))
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(header.generations, 1), completed=event.generation, width=32),
            Text(f"generation {event.generation}/{header.generations}"),
            Text(self._rate.words(event.generation, header.generations), style="dim"),
        )
        now = Text(_now_words(event), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(self._top(), bar, numbers, *self._recent, now)

    def _top(self) -> RenderableType:
        top = Table.grid(expand=True)
        top.add_column()
        top.add_column(justify="right")
        top.add_row(Text(self.header.problem, style="bold"), Text(self.header.device, style="dim"))
        return top


class LineProgress:
    """Plain lines: each new champion (before the first, each new best), and the counts every 30 s."""

    def __init__(self, header: Header, console: Console) -> None:
        self.header = header
        self._console = console
        self._rate = SessionRate()
        self._best = 0.0
        self._champion: Confirmation | None = None
        self._printed_at = monotonic()

    def __enter__(self) -> Self:
        header = self.header
        self._say(f"{header.problem} on {header.device}, proposer: {header.proposer}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Print a line if the event is news."""
        self._rate.note(event)
        best = event.best
        where = f"generation {event.generation}/{self.header.generations}"
        if event.champion is not None:
            if event.champion != self._champion:
                self._champion = champion = event.champion
                found = f"{confirmed_words(champion)}, {time_words(champion.time_ms)}"
                self._say(f"{where}: best {found}, {champion.kernel} {event.champion_note}")
                return
        elif best is not None and best.kernel.id != self.header.reference and best.fitness > self._best:
            self._best = best.fitness
            note = event.birth.note if event.birth else ""
            found = f"{speedup_words(best.evaluation)}, {time_words(best.evaluation.timing.time_ms)}"
            self._say(f"{where}: best {found}, {best.kernel.id} {note}")
            return
        if event.birth is None and monotonic() - self._printed_at > QUIET_SECONDS:
            rate = self._rate.words(event.generation, self.header.generations)
            self._say(f"{where}: {count_words(event.totals)}; {rate}")

    def _say(self, line: str) -> None:
        self._printed_at = monotonic()
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def progress_for(header: Header, console: Console) -> LiveProgress | LineProgress:
    """The live display on a terminal, plain lines elsewhere."""
    return LiveProgress(header, console) if console.is_terminal else LineProgress(header, console)


def _best_text(event: Event) -> Text:
    """The published speedup: the champion's, else that of the fittest kernel."""
    best = event.best
    published = event.champion or (best.evaluation.timing if best else None)
    if published is None:
        return Text("–")
    text = Text(published_words(event.champion, best.evaluation if best else None), style="bold green")
    times = f"  {time_words(published.time_ms)}, eager {time_words(published.reference_ms)}"
    return text.append(times, style="not bold default")


def _now_words(event: Event) -> str:
    """The current step; "" between two steps."""
    doing = []
    if event.contest:
        challenger, *others = event.contest
        doing.append(f"measuring {challenger} again, beside {', '.join((*others, 'eager'))}")
    if len(event.judging) == 1:
        (birth,) = event.judging
        doing.append(f"judging {birth.kernel}{f': {birth.note}' if birth.note else ''}")
    elif event.judging:
        doing.append(f"judging {len(event.judging)} kernels")
    if event.waiting:
        doing.append(f"{event.waiting} more wait{'s' if event.waiting == 1 else ''}")
    if event.asked:
        doing.append(f"{event.asked} requested from models")
    return "; ".join(doing)


def _islands_text(islands: Sequence[IslandSummary]) -> Text:
    parts = []
    for number, island in enumerate(islands):
        speedup = as_times(island.best) if island.best else "–"
        parts.append(f"{number}: {speedup} in {island.niches} niche{'' if island.niches == 1 else 's'}")
    return Text("   ".join(parts))


def _token_words(totals: RunTotals) -> str:
    sent, received = totals.prompt_tokens, totals.completion_tokens
    return f", {sent:,} tokens sent, {received:,} received" if sent or received else ""


def _child_line(birth: Birth, event: Event) -> Text:
    evaluation = event.evaluation
    line = Text(
        f"  g{birth.generation:<3} island {birth.island}  {birth.operator.value:<8}", no_wrap=True, overflow="ellipsis"
    )
    if evaluation is None:
        line.append(f"{birth.state.value:<27}", style="dim")
    elif evaluation.verdict is Verdict.CORRECT:
        line.append(f"{speedup_words(evaluation):<27}", style="bold green" if event.entry else "green")
    else:
        line.append(f"{verdict_words(evaluation.verdict):<27}", style=VERDICT_STYLE[evaluation.verdict])
    return line.append(birth.note, style="dim")
