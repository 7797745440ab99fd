"""Who may challenge the champion, and who meets in the final: decisions from facts that are told, and nothing else."""

from collections.abc import Collection, Iterable, Sequence

from kbevolve.archive.champion import FINAL, champion_of
from kbevolve.archive.records import Confirmation
from kbevolve.islands.island import Member


class Champions:
    """The title of one run.

    The best of many evaluations is partly luck: with n kernels of equal speed and noise sigma, the luckiest looks about
    sigma * sqrt(2 ln n) faster than it is. So a kernel that looks better than what is published is measured again,
    beside the champion, and only that measurement decides and is published.

    Args:
        reference: id of the kernel that is the reference itself, which all are measured against; it never competes.
        finalists: how many meet at the end.
    """

    def __init__(self, *, reference: str, finalists: int) -> None:
        self._reference = reference
        self._finalists = finalists
        self._confirmations: list[Confirmation] = []
        self._failed: frozenset[str] = frozenset()

    @property
    def champion(self) -> Confirmation | None:
        """The confirmation that is published now; None while nobody was confirmed to be faster than eager."""
        return champion_of(self._confirmations, self._failed)

    @property
    def published(self) -> float:
        """The speedup to beat; eager itself holds the title first."""
        champion = self.champion
        return champion.speedup if champion else 1.0

    @property
    def out(self) -> int:
        """How many kernels may not challenge, at most: those confirmed, those that failed, and the reference."""
        return len(self._confirmations) + len(self._failed) + 1

    def take_note(self, confirmations: Sequence[Confirmation], failed: Collection[str] = ()) -> None:
        """Take note of confirmations, in the order they were made, and of kernels that did not pass again."""
        self._confirmations += confirmations
        self._failed |= frozenset(failed)

    def challenger(self, members: Iterable[Member]) -> Member | None:
        """The kernel that has at least shown the most, when that is more than is published; else None.

        Whoever was confirmed in this run, won or lost, rests on the same evaluation still and does not come again.
        """
        published = self.published
        confirmed = {one.kernel for one in self._confirmations}
        fresh = [member for member in self._eligible(members) if member.kernel.id not in confirmed]
        return next((member for member in fresh if member.shown > published), None)

    def finalists(self, members: Iterable[Member]) -> tuple[Member, ...]:
        """Who has shown most, the champion whatever it has shown; empty when there is nothing to decide."""
        champion = self.champion
        ranked = self._eligible(members)
        title = [member for member in ranked if champion is not None and member.kernel.id == champion.kernel]
        others = [member for member in ranked if member not in title]
        invited = (*title, *others)[: self._finalists]
        return () if invited == tuple(title) else invited  # alone, and confirmed already

    def had_final(self, generation: int) -> bool:
        """Whether the final of this generation is over."""
        return any(one.purpose == FINAL and one.generation == generation for one in self._confirmations)

    def _eligible(self, members: Iterable[Member]) -> list[Member]:
        """Who may hold the title, who has shown most first; ties in the order of kernel ids, so that replays agree."""
        barred = self._failed | {self._reference}
        eligible = [member for member in members if member.kernel.id not in barred]
        return sorted(eligible, key=lambda member: (-member.shown, member.kernel.id))
