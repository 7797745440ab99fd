"""An island: its active kernels, and what happens when a child arrives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from kbevolve.archive.records import Evaluation, Kernel

#: Share of the 95 % interval's lower half that is taken off a speedup: about one standard error of four or five rounds.
#: These tell little of their own spread. With the whole of it, a kernel that was measured in an unquiet minute counted
#: for less than what it was made from (docs/search.md).
CAUTION = 0.3
#: Active kernels of an island beside the elites of its niches (SEARCH section 2).
CROWD = 24


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
    #: Niche key (`islands.niches`).
    niche: str
    #: Births of which it was the main parent, in this run.
    children: int = 0

    @property
    def fitness(self) -> float:
        """By it members are ranked; see `fitness_of`."""
        return fitness_of(self.evaluation)

    @property
    def shown(self) -> float:
        """Lower end of the 95 % interval of the speedup: what the kernel has at least shown."""
        return self.evaluation.timing.speedup_low or 0.0


def fitness_of(evaluation: Evaluation) -> float:
    """The speedup less about one standard error; 0 for a kernel that was not timed.

    A bound as `Member.shown` is one, but a looser one: who breeds is no claim, and costs a child if it was luck.
    """
    low, speedup = evaluation.timing.speedup_low or 0.0, evaluation.timing.speedup or 0.0
    return speedup * (low / speedup) ** CAUTION if low > 0 and speedup > 0 else low


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """The active kernels of one island: its fittest, whatever their niche, and the elite of every niche.

    Two views because each fails alone: the fittest soon resemble each other, and where all kernels fall into one
    niche (settings of one skeleton often do) a grid of elites would be a single parent (SEARCH section 2).
    """

    index: int
    #: Niche key -> elite, one for each niche that was ever filled.
    elites: Mapping[str, Member] = field(default_factory=dict)
    #: The `CROWD` fittest kernels, the fittest first.
    crowd: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        """All active kernels, each once, the fittest first."""
        crowd = {member.kernel.id for member in self.crowd}
        return _ranked((*self.crowd, *(elite for elite in self.elites.values() if elite.kernel.id not in crowd)))

    @property
    def best(self) -> Member | None:
        """The fittest kernel, None on an empty island."""
        return self.crowd[0] if self.crowd else None

    def entry(self, member: Member) -> Entry:
        """What `member` would do to its niche. A tie keeps the elite: being newer is no merit.

        Nor is it one to be the machine code of another member, in whatever words, and whatever it was measured at.
        """
        if self._has_twin(member):
            return Entry.NONE
        elite = self.elites.get(member.niche)
        if elite is None:
            return Entry.NEW
        return Entry.IMPROVED if member.fitness > elite.fitness else Entry.NONE

    def has_room(self, kernel_id: str, fitness: float) -> bool:
        """Whether a kernel would be among the fittest of the island, whatever its niche."""
        last = self.crowd[-1] if len(self.crowd) == CROWD else None
        return last is None or (-fitness, kernel_id) < (-last.fitness, last.kernel.id)

    def with_member(self, member: Member) -> "Island":
        """The island after `member` arrived; the same when it was there already, or one of its machine code."""
        if self._has_twin(member):
            return self
        elites = {**self.elites, member.niche: member} if self.entry(member) else self.elites
        crowd = self.crowd
        if all(one.kernel.id != member.kernel.id for one in crowd):
            crowd = _ranked((*crowd, member))[:CROWD]
        return Island(index=self.index, elites=elites, crowd=crowd)

    def _has_twin(self, member: Member) -> bool:
        code = member.evaluation.compiled.binary_hash
        return bool(code) and any(
            one.evaluation.compiled.binary_hash == code and one.kernel.id != member.kernel.id
            for members in (self.crowd, self.elites.values())
            for one in members
        )

    def with_children(self, children: Mapping[str, int]) -> "Island":
        """The island whose members know how many children they had, by kernel id."""

        def counted(member: Member) -> Member:
            number = children.get(member.kernel.id, 0)
            return member if member.children == number else replace(member, children=number)

        elites = {niche: counted(member) for niche, member in self.elites.items()}
        return Island(index=self.index, elites=elites, crowd=tuple(map(counted, self.crowd)))


def _ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """The fittest first; ties in the order of kernel ids, so that replays agree."""
    return tuple(sorted(members, key=lambda member: (-member.fitness, member.kernel.id)))
