"""An island: the kernels that hold its niches, and what happens when a child arrives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kbevolve.archive.records import Evaluation, Kernel


class Entry(IntEnum):
    """What a child did to its niche, in order."""

    NONE = 0  # the niche's elite stays
    IMPROVED = 1  # the child replaces the niche's elite
    NEW = 2  # the niche was empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A correct kernel as the islands see it."""

    kernel: Kernel
    evaluation: Evaluation
    #: Niche key (`islands.descriptors`).
    niche: str
    #: Births of which it was the main parent, in this run.
    children: int = 0

    @property
    def fitness(self) -> float:
        """Lower end of the 95 % interval of the speedup: what the kernel has at least shown."""
        return self.evaluation.speedup_low or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """The elites of one island, one for each niche that was ever filled."""

    index: int
    #: Niche key -> elite.
    elites: Mapping[str, Member] = field(default_factory=dict)

    @property
    def members(self) -> tuple[Member, ...]:
        """Elites, the fittest first; ties in the order of kernel ids, so that replays agree."""
        return tuple(sorted(self.elites.values(), key=lambda member: (-member.fitness, member.kernel.id)))

    @property
    def best(self) -> Member | None:
        """The fittest elite, None on an empty island."""
        return next(iter(self.members), None)

    def entry(self, member: Member) -> Entry:
        """What `member` would do to its niche. A tie keeps the elite: being newer is no merit."""
        elite = self.elites.get(member.niche)
        if elite is None:
            return Entry.NEW
        return Entry.IMPROVED if member.fitness > elite.fitness else Entry.NONE

    def with_member(self, member: Member) -> "Island":
        """The island after `member` arrived; unchanged when its niche's elite stays."""
        if not self.entry(member):
            return self
        return Island(index=self.index, elites={**self.elites, member.niche: member})
