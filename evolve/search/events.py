"""What an observer of a search receives."""

from collections.abc import Callable
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Confirmation, Evaluation
from kbevolve.evolve.state.totals import RunTotals
from kbevolve.islands.island import Entry, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step of a search, and how far the run is at that time."""

    #: The oldest generation that is not complete. The attempt below may be of a later one.
    generation: int
    #: A copy.
    totals: RunTotals
    #: Of each island: speedup of its fittest kernel over eager (None without one), and how many niches have an elite.
    islands: tuple[tuple[float | None, int], ...]
    #: The fittest valid kernel, the reference only when there is no other; None while no kernel is correct.
    best: Member | None = None
    #: The published confirmation and the note of its kernel; None and "" while no kernel is confirmed.
    champion: Confirmation | None = None
    champion_note: str = ""
    #: Ids of the kernels of the contest that starts now; empty for other steps.
    contest: tuple[str, ...] = ()
    #: The attempt of this step; None when a generation or a contest starts, or only the work in flight has changed.
    birth: Birth | None = None
    #: What the judge measured; None before the verdict, and when the attempt has no kernel.
    evaluation: Evaluation | None = None
    #: Whether the archive already had the evaluation.
    remembered: bool = False
    #: What the kernel changed in its niche.
    entry: Entry = Entry.NONE
    #: Whether the attempt is complete; False while its kernel waits for a judge.
    done: bool = False
    #: Attempts whose kernels are being judged, the most urgent first, and how many wait behind them.
    judging: tuple[Birth, ...] = ()
    waiting: int = 0
    #: How many requests for a child are under way.
    asked: int = 0


Observer = Callable[[Event], None]
