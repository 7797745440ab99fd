"""Selection of parents: pure functions of an island and an explicit `Random`."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from kbevolve.islands.island import Island, Member, ranked

#: A level in the key of a niche, ``m2c1d1l0`` or ``0-3-1``.
_LEVEL = re.compile(r"\d+")

#: How much faster than an island's best a new champion is that the island's next child is shown at once
#: (docs/results/2026-11-23-lookahead.md).
FAR_AHEAD = 1.5


class Selection(Protocol):
    """Chooses the parents of one child."""

    def __call__(self, island: Island, rng: Random, eligible: Callable[[Member], bool]) -> tuple[Member, ...]:
        """Two different eligible parents, the main one first; one when there is only one, none when there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSelection:
    """Draws parents by rank, and less often the more children they had.

    Weight of the member of rank r with n children: ``(r+1)**-pressure / (1 + discount*n)`` (SEARCH section 4). Ranks,
    not speedups: a lead of 100x would otherwise end all diversity. A share of the draws is among elites of niches.
    """

    pressure: float = 1.5
    discount: float = 0.3
    elite_share: float = 0.25

    def __call__(self, island: Island, rng: Random, eligible: Callable[[Member], bool]) -> tuple[Member, ...]:
        """See `Selection`."""
        candidates = [member for member in island.members if eligible(member)]
        elites = [member for member in candidates if member.kernel.id == island.elites[member.niche].kernel.id]
        chosen: list[Member] = []
        while len(chosen) < min(2, len(candidates)):
            among = elites if rng.random() < self.elite_share else candidates
            among = [member for member in among if member not in chosen]
            weights = [
                (rank + 1) ** -self.pressure / (1 + self.discount * member.children)
                for rank, member in enumerate(among)
            ]
            if among:
                chosen += rng.choices(among, weights)
        return tuple(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class NicheSelection:
    """Half of the draws are elites of the niches with the fewest children; for a run without progress.

    A niche's children are those of its members that live on the island. Of equal niches the fitter elite is chosen.
    """

    #: How the other half is drawn, and every second parent.
    otherwise: Selection
    share: float = 0.5

    def __call__(self, island: Island, rng: Random, eligible: Callable[[Member], bool]) -> tuple[Member, ...]:
        """See `Selection`."""
        is_drawn = rng.random() < self.share
        usual = self.otherwise(island, rng, eligible)
        children = Counter[str]()
        for member in island.members:
            children[member.niche] += member.children
        elites = [elite for elite in island.elites.values() if eligible(elite)]
        if not (is_drawn and elites):
            return usual
        first = min(elites, key=lambda elite: (children[elite.niche], -elite.fitness, elite.kernel.id))
        return _led_by(first, usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalSelection:
    """Some draws are rivals of the best: the fittest elite without one trait of the best kernel's niche.

    A trait that all good kernels share may prevent a better one. A kernel without it is slower at first, so by rank
    alone it would have no children. A trait is an axis of the niche on which the best kernel is above level 0.
    """

    #: How the other draws are made, and every second parent.
    otherwise: Selection
    share: float

    def __call__(self, island: Island, rng: Random, eligible: Callable[[Member], bool]) -> tuple[Member, ...]:
        """See `Selection`."""
        is_drawn = rng.random() < self.share
        usual = self.otherwise(island, rng, eligible)
        elites = ranked(filter(eligible, island.elites.values()))
        if not (is_drawn and elites):
            return usual
        traits = [axis for axis, level in enumerate(_levels(elites[0])) if level]
        given_up = rng.choice(traits) if traits else None
        rival = next((elite for elite in elites if given_up is not None and not _levels(elite)[given_up]), None)
        if rival is None:
            return usual
        return _led_by(rival, usual)


def _led_by(first: Member, others: Sequence[Member]) -> tuple[Member, ...]:
    """As many parents as there are others, `first` before them."""
    return (first, *(member for member in others if member.kernel.id != first.kernel.id))[: max(len(others), 1)]


def _levels(member: Member) -> list[int]:
    """The level on each axis of its niche; axes may have any name."""
    return [int(level) for level in _LEVEL.findall(member.niche)]


def inspirations(island: Island, parents: Sequence[Member], rng: Random, *, count: int = 2) -> tuple[Member, ...]:
    """Elites of other niches to learn from: the fittest first, then others at random."""
    taken = {parent.kernel.id for parent in parents}
    others = ranked(elite for elite in island.elites.values() if elite.kernel.id not in taken)
    if len(others) <= count:
        return others
    return (others[0], *rng.sample(others[1:], count - 1))
