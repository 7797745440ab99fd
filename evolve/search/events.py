"""What the search tells whoever watches it."""

from collections.abc import Callable
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Confirmation, Evaluation
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A step that an observer may want to show."""

    #: The oldest one that is not over. Births may be of later ones.
    generation: int
    #: Live, not a copy: look, do not keep.
    population: Population
    #: The confirmation that is published now; None while nobody was confirmed.
    champion: Confirmation | None = None
    #: Ids of the kernels that are about to be measured against each other; empty for other steps.
    contest: tuple[str, ...] = ()
    #: The birth it is about; None when a generation begins, or a contest, or when only what is under way has changed.
    birth: Birth | None = None
    #: What the judge found; None before, and when the birth has no kernel.
    evaluation: Evaluation | None = None
    #: Whether the evaluation was in the archive already.
    remembered: bool = False
    #: What the kernel did to its niche.
    entry: Entry = Entry.NONE
    #: Whether the birth is dealt with; False while its kernel waits to be judged.
    done: bool = False
    #: Births whose kernels are being judged now, the most urgent first, and how many wait behind them.
    judging: tuple[Birth, ...] = ()
    waiting: int = 0
    #: How many children are being asked for.
    asked: int = 0


Observer = Callable[[Event], None]
