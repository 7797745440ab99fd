"""What a run is given of other problems: credit of techniques, and the best of similar problems.

`evolve.state.gathering` gathers it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbevolve.evolve.state.knowledge import nothing
from kbevolve.islands.credit.tally import Tally
from kbevolve.islands.credit.techniques import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Heirloom:
    """The best kernel of a similar problem."""

    #: The problem's name, and the kernel's id.
    problem: str
    kernel: str
    #: Over eager PyTorch, there.
    speedup: float
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """An idea that paid on a similar problem."""

    problem: str
    title: str
    technique: str
    #: Its child's speed over its parent's, a factor.
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """Everything that a run is given; nothing by default."""

    #: By technique, and by technique and bottleneck (`Experience.elsewhere`).
    tallies: Mapping[Key, Tally] = field(default_factory=lambda: nothing())
    kernels: tuple[Heirloom, ...] = ()
    ideas: tuple[Paid, ...] = ()
