"""What a search can be tried on without a device: programs as tuples of choices, and what a judge would say of each.

A program of any landscape is one choice for every gene. So one set of moves (`simulation.moves`) and one
`SimulatedLLM` serve them all, and a landscape only has to know how fast each program is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol

from kbevolve.archive.records import Verdict

#: A genotype: the index of one choice for each gene of its landscape.
Program = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gene:
    """One place where programs differ."""

    name: str
    #: The technique it belongs to; ideas and credit go by families.
    family: str
    #: How many choices there are, at least 1; programs hold indices below it.
    choices: int
    #: Whether its choices are the rungs of a technique, 0 for not used; otherwise they are values of a parameter.
    rung: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFailure:
    """Why a program has no time."""

    #: How far it got; never CORRECT.
    verdict: Verdict
    #: One line that recurs with the same cause.
    signature: str


#: What one evaluation of a program says: the natural logarithms of its time over the reference's, one for each timed
#: round; or why it has none.
ProgramOutcome = tuple[float, ...] | ProgramFailure


class Landscape(Protocol):
    """Programs with known speeds. Immutable: the same question has the same answer, given the same `Random`."""

    def __hash__(self) -> int:
        """By identity: what is computed of a landscape is kept."""

    @property
    def name(self) -> str:
        """Short, for tables."""

    @property
    def genes(self) -> tuple[Gene, ...]:
        """What a program is a tuple of choices for."""

    @property
    def optimum(self) -> float:
        """The largest `true_value` of all programs."""

    def start(self) -> tuple[Program, ...]:
        """The valid programs that every search begins with, at least one."""

    def exists(self, program: Program) -> bool:
        """Whether a proposal can be this program; proposals keep to such."""

    def failure(self, program: Program) -> ProgramFailure | None:
        """Why the program itself fails; None for a valid one."""

    def true_value(self, program: Program) -> float | None:
        """Log speedup over the reference without noise, None for a program that fails."""

    def measure(self, program: Program, rng: Random) -> ProgramOutcome:
        """One evaluation, with noise."""

    def niche(self, program: Program) -> str:
        """Where it lives: a key of a few levels, read off the program alone (as `islands.niches` for kernels)."""

    def fame(self, family: str) -> float:
        """The log speedup that is commonly said of a technique, whatever it brings here."""


@lru_cache(maxsize=256)
def families(genes: tuple[Gene, ...]) -> Mapping[str, tuple[int, ...]]:
    """Family -> positions of its genes, in order of appearance."""
    found: dict[str, tuple[int, ...]] = {}
    for position, gene in enumerate(genes):
        found[gene.family] = (*found.get(gene.family, ()), position)
    return found


def niche_key(levels: Sequence[int]) -> str:
    """Levels as one word, e.g. ``0-3-1``."""
    return "-".join(map(str, levels))
