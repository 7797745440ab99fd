"""An island: its active kernels, and how a new kernel changes them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from kbevolve.archive.records import Evaluation, Kernel

#: Share of the 95 % interval's lower half that is taken off a speedup: about one standard error of four or five rounds.
#: So few rounds say little about their spread. With the whole half, a kernel measured on a busy machine counted for
#: less than its parent (docs/search.md).
CAUTION = 0.3
#: Active kernels of an island in addition to the elites of its niches (SEARCH section 2).
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
    #: Attempts of this run with it as the main parent. It changes while the member stays the same.
    children: int = field(default=0, compare=False)
    #: Rank among members; see `fitness_of`. Kept, since each choice of a parent compares all members.
    fitness: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fitness", fitness_of(self.evaluation))

    @property
    def shown(self) -> float:
        """Lower end of the 95 % interval of the speedup."""
        return self.evaluation.timing.speedup_low or 0.0


def fitness_of(evaluation: Evaluation) -> float:
    """The speedup less about one standard error; 0 for a kernel that was not timed.

    A looser lower bound than `Member.shown`: the choice of a parent is no claim, and an error costs one child.
    """
    low, speedup = evaluation.timing.speedup_low or 0.0, evaluation.timing.speedup or 0.0
    return speedup * (low / speedup) ** CAUTION if low > 0 and speedup > 0 else low


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """The active kernels of one island: its fittest, whatever their niche, and the elite of every niche.

    Both, because each alone fails: the fittest soon resemble each other; and where all kernels are in one niche
    (parameter settings of one skeleton often are), a grid of elites has a single parent (SEARCH section 2).
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
        return ranked((*self.crowd, *(elite for elite in self.elites.values() if elite.kernel.id not in crowd)))

    @property
    def best(self) -> Member | None:
        """The fittest kernel, None on an empty island."""
        return self.crowd[0] if self.crowd else None

    def entry(self, member: Member) -> Entry:
        """What `member` would do to its niche. A tie keeps the older elite.

        A kernel with the same binary as another member does nothing, whatever time was measured for it.
        """
        if self._has_identical(member):
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
        """The island with `member`; unchanged if the island has it, or a kernel with the same binary."""
        if self._has_identical(member):
            return self
        elites = {**self.elites, member.niche: member} if self.entry(member) else self.elites
        crowd = self.crowd
        if all(one.kernel.id != member.kernel.id for one in crowd):
            crowd = ranked((*crowd, member))[:CROWD]
        return Island(index=self.index, elites=elites, crowd=crowd)

    def _has_identical(self, member: Member) -> bool:
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


def fittest(islands: Iterable[Island]) -> Member | None:
    """The fittest kernel of several islands; None while all are empty."""
    return next(iter(ranked(island.best for island in islands if island.best is not None)), None)


def ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """The fittest first; ties in the order of kernel ids, so that replays agree."""
    return tuple(sorted(members, key=lambda member: (-member.fitness, member.kernel.id)))
