"""How islands share kernels: the distribution of the starting kernels, and the ring of migration."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kbevolve.islands.island import Entry, Island, Member

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrant:
    """A kernel that moves to another island."""

    #: Index of its island.
    origin: int
    #: Index of the island that receives it.
    target: int
    member: Member


def deal(everywhere: Sequence[Item], dealt: Sequence[Item], islands: int) -> list[list[Item]]:
    """Starting kernels of each island.

    Each island gets all of `everywhere`. The islands get those of `dealt` in turn, repeated until every island has one,
    so that islands start from different kernels if there are enough.
    """
    starts = [list(everywhere) for _ in range(islands)]
    if dealt:
        for turn in range(max(islands, len(dealt))):
            starts[turn % islands].append(dealt[turn % len(dealt)])
    return starts


def ring(islands: Sequence[Island]) -> list[Migrant]:
    """Each island's best goes to the next island, where it would enter or improve a niche.

    All migrants are chosen before any arrives, so the order of the islands does not matter and nothing travels
    further than one island.
    """
    if len(islands) < 2:
        return []
    migrants = []
    for island in islands:
        target = islands[(island.index + 1) % len(islands)]
        best = island.best
        if best is not None and target.entry(best) is not Entry.NONE:
            migrants.append(Migrant(origin=island.index, target=target.index, member=best))
    return migrants


def restart(islands: Sequence[Island]) -> Migrant | None:
    """The best kernel of the best island, as the restart of the worst island. None where there is no such pair.

    Of islands with the same best, which migration makes often, the last one is the worst.
    """
    filled = {island.index: island.best for island in islands if island.best is not None}
    if len(filled) < 2:
        return None
    origin, *_, target = sorted(filled, key=lambda index: (-filled[index].fitness, index))
    return Migrant(origin=origin, target=target, member=filled[origin])
