"""The progress of a run: a live display on a terminal, plain lines elsewhere."""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kbevolve.archive.formatting import (
    as_times,
    confirmed_words,
    counted,
    duration_words,
    published_words,
    speedup_words,
    state_words,
    time_words,
    verdict_words,
)
from kbevolve.archive.records import Birth, Confirmation, Verdict
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE, count_words
from kbevolve.evolve.cli.render.tables import say
from kbevolve.evolve.cli.verbosity import Verbosity, verbosity
from kbevolve.evolve.proposers.factory import proposer_words
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.search.events import Event, Observer
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.totals import RunTotals

#: Children shown under the numbers; more would scroll the numbers out of a small terminal.
RECENT = 6
#: Seconds between two plain lines without news.
QUIET_SECONDS = 30.0


class SessionRate:
    """Rate and remaining time of this session; earlier sessions do not count."""

    def __init__(self, generations: int) -> None:
        self._generations = generations
        self._started = monotonic()
        self._first_generation: int | None = None
        self._judged = 0

    def note(self, event: Event) -> None:
        """Count an event."""
        if self._first_generation is None:
            self._first_generation = event.generation
        self._judged += event.done and event.evaluation is not None and not event.remembered

    def words(self, generation: int) -> str:
        """``310 kernels per hour, 2:10 left``: a rate after the first verdict, a time after the first generation."""
        elapsed = monotonic() - self._started
        words = [f"{self._judged / max(elapsed, 1e-9) * 3600:.0f} kernels per hour"] if self._judged else []
        done = generation - (self._first_generation or 0)
        if done > 0:
            words.append(f"{duration_words(elapsed / done * (self._generations - generation + 1))} left")
        return ", ".join(words)


class LiveProgress(Live):
    """A display that is redrawn at every event (not by a clock: a redraw during a timed block would be measured)."""

    def __init__(self, context: RunContext, devices: JudgeDevices, console: Console, title: str = "") -> None:
        self._generations = context.settings.search.generations
        self._proposer = proposer_words(context.settings)
        self._rate = SessionRate(self._generations)
        self._recent: deque[Text] = deque(maxlen=RECENT)
        self._top = Table.grid(expand=True)
        self._top.add_column()
        self._top.add_column(justify="right")
        self._top.add_row(Text(title or context.problem.name, style="bold"), Text(devices.description, style="dim"))
        # Judges start before the first event: workers, torch, a cluster.
        first = Group(self._top, Text("starting …", style="dim"))
        super().__init__(first, console=console, auto_refresh=False, transient=True)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self._rate.note(event)
        if event.birth is not None and event.done:
            self._recent.append(_child_line(event.birth, event))
        self.update(self.shown(event), refresh=True)

    def shown(self, event: Event) -> RenderableType:
        """The whole display."""
        numbers = Table.grid(padding=(0, 2))
        numbers.add_column(style="dim")
        numbers.add_column()
        numbers.add_row("best", _best_text(event))
        numbers.add_row("islands", _islands_text(event.islands))
        numbers.add_row("kernels", Text(count_words(event.totals)))
        numbers.add_row("proposer", Text(self._proposer + _token_words(event.totals)))
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=max(self._generations, 1), completed=event.generation, width=32),
            Text(f"generation {event.generation}/{self._generations}"),
            Text(self._rate.words(event.generation), style="dim"),
        )
        now = Text(_now_words(event), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(self._top, bar, numbers, *self._recent, now)


class LineProgress:
    """Plain lines: each new champion (before the first, each new best), and the counts every 30 s.

    With `every_kernel` a line for each attempt, too.
    """

    def __init__(
        self, context: RunContext, devices: JudgeDevices, console: Console, *, every_kernel: bool = False
    ) -> None:
        self._context = context
        self._every_kernel = every_kernel
        self._generations = context.settings.search.generations
        self._console = console
        self._rate = SessionRate(self._generations)
        self._best = 0.0
        self._champion: Confirmation | None = None
        self._say(f"{context.problem.name} on {devices.description}, proposer: {proposer_words(context.settings)}")

    def __call__(self, event: Event) -> None:
        """Print a line if the event is news."""
        self._rate.note(event)
        if self._every_kernel and event.birth is not None and event.done:
            self._say(f"{event.birth.kernel or '':<16}{_child_line(event.birth, event).plain}")
        best, champion = event.best, event.champion
        where = f"generation {event.generation}/{self._generations}"
        if champion is not None:
            if champion != self._champion:
                self._champion = champion
                found = f"{confirmed_words(champion)}, {time_words(champion.time_ms)}"
                self._say(f"{where}: best {found}, {champion.kernel} {event.champion_note}")
                return
        elif best is not None and best.kernel.id != self._context.reference and best.fitness > self._best:
            self._best = best.fitness
            note = event.birth.note if event.birth else ""
            found = f"{speedup_words(best.evaluation)}, {time_words(best.evaluation.timing.time_ms)}"
            self._say(f"{where}: best {found}, {best.kernel.id} {note}")
            return
        if event.birth is None and monotonic() - self._printed_at > QUIET_SECONDS:
            rate = self._rate.words(event.generation)
            self._say("; ".join(filter(None, (f"{where}: {count_words(event.totals)}", rate, _now_words(event)))))

    def _say(self, line: str) -> None:
        self._printed_at = monotonic()
        say(self._console, line)


def progress_for(context: RunContext, devices: JudgeDevices, console: Console) -> AbstractContextManager[Observer]:
    """The live display on a terminal, plain lines elsewhere; a line for each kernel, or nothing, as the user wants."""
    wanted = verbosity()
    if wanted is Verbosity.QUIET:
        return nullcontext(lambda event: None)
    if console.is_terminal and wanted is Verbosity.NORMAL:
        return LiveProgress(context, devices, console)
    return nullcontext(LineProgress(context, devices, console, every_kernel=wanted is Verbosity.VERBOSE))


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


def _islands_text(islands: Sequence[tuple[float | None, int]]) -> Text:
    return Text(
        "   ".join(
            f"{number}: {as_times(best) if best else '–'} in {counted(niches, 'niche')}"
            for number, (best, niches) in enumerate(islands)
        )
    )


def _token_words(totals: RunTotals) -> str:
    sent, received = totals.prompt_tokens, totals.completion_tokens
    return f", {sent:,} tokens sent, {received:,} received" if sent or received else ""


def _child_line(birth: Birth, event: Event) -> Text:
    evaluation = event.evaluation
    line = Text(
        f"  g{birth.generation:<3} island {birth.island}  {birth.operator.value:<8}", no_wrap=True, overflow="ellipsis"
    )
    if evaluation is None:
        line.append(f"{state_words(birth.state):<27}", style="dim")
    elif evaluation.verdict is Verdict.CORRECT:
        line.append(f"{speedup_words(evaluation):<27}", style="bold green" if event.entry else "green")
    else:
        line.append(f"{verdict_words(evaluation.verdict):<27}", style=VERDICT_STYLE[evaluation.verdict])
    return line.append(birth.note, style="dim")
