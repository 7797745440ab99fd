"""What a run reached, attempt by attempt, from its outline: the best so far, niches, ideas."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.lineage import first_births
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Operator, Placement, Verdict
from kbevolve.evolve.state.knowledge import Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A kernel of a run in order of creation."""

    #: Children judged up to and with it; 0 for starting kernels.
    count: int
    entry: OutlineEntry
    #: Whether it became the best so far, by the lower end of its interval.
    leads: bool
    #: Its speedup over that of the best before it; None unless it leads, and for the first.
    gain: float | None


def milestones(entries: Iterable[OutlineEntry], *, reference: str | None = None) -> Iterator[Milestone]:
    """Every judged kernel of a run once, in order. `reference` is the kernel that is the reference: it never leads."""
    count, best = 0, None
    for name, entry in first_births(entries).items():
        if entry.verdict is None:
            continue
        seed = entry.operator is Operator.SEED
        count += not seed
        low = entry.speedup_low or 0.0
        leads = entry.verdict is Verdict.CORRECT and bool(entry.speedup) and name != reference
        leads = leads and (best is None or low > (best.speedup_low or 0.0))
        gain = entry.speedup / best.speedup if leads and best and best.speedup and entry.speedup else None
        yield Milestone(count=0 if seed else count, entry=entry, leads=leads, gain=gain)
        best = entry if leads else best


def decisive(leads: Sequence[Milestone], *, most: int = 9) -> list[Milestone]:
    """Of the kernels that led, in order, the first, the last, and those of the largest gains between them."""
    between = sorted(leads[1:-1], key=lambda one: -(one.gain or 0.0))[: most - 2]
    return [one for one in leads if one is leads[0] or one is leads[-1] or one in between]


def gain_over(child: OutlineEntry, parent: OutlineEntry | None) -> Gain | None:
    """The gain of a correct child over a correct parent; None when either is not."""
    if parent is None or not child.speedup or not parent.speedup:
        return None
    low, high = child.speedup_low or child.speedup, child.speedup_high or child.speedup
    parent_low, parent_high = parent.speedup_low or parent.speedup, parent.speedup_high or parent.speedup
    return Gain(factor=child.speedup / parent.speedup, low=low / parent_high, high=high / parent_low)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaRecord:
    """An idea, or a technique, and what the run made of it."""

    title: str
    technique: str
    attempts: int
    correct: int
    #: Attempts that were faster than their parent beyond both intervals.
    paid: int
    #: The best gain over a parent, and the attempt that had it; None where none was correct.
    gain: Gain | None
    best: OutlineEntry | None
    #: Islands that tried it.
    islands: tuple[int, ...]


def idea_records(entries: Sequence[OutlineEntry], *, by_technique: bool = False) -> tuple[IdeaRecord, ...]:
    """The ideas of a run by title, or its techniques; the largest gain first."""
    first = first_births(entries)
    groups: dict[str, list[OutlineEntry]] = {}
    for entry in entries:
        if entry.idea:
            groups.setdefault(entry.technique if by_technique else entry.title, []).append(entry)
    records = []
    for title, group in groups.items():
        gains = [(gain, one) for one in group if (gain := gain_over(one, _parent(one, first))) is not None]
        gain, best = max(gains, key=lambda pair: pair[0].factor, default=(None, None))
        records.append(
            IdeaRecord(
                title=title,
                technique=group[0].technique,
                attempts=len(group),
                correct=sum(one.verdict is Verdict.CORRECT for one in group),
                paid=sum(gain.low > 1 for gain, _ in gains),
                gain=gain,
                best=best,
                islands=tuple(sorted({one.island for one in group})),
            )
        )
    return tuple(sorted(records, key=lambda one: (-(one.gain.factor if one.gain else 0.0), -one.correct, one.title)))


def _parent(entry: OutlineEntry, first: Mapping[str, OutlineEntry]) -> OutlineEntry | None:
    """Its first correct parent."""
    parents = (first[name] for name in entry.parents if name in first)
    return next((one for one in parents if one.verdict is Verdict.CORRECT), None)


def niche_elites(entries: Iterable[OutlineEntry], placements: Iterable[Placement]) -> dict[str, OutlineEntry]:
    """Niche key to the best kernel that ever entered it, on any island."""
    first, best = first_births(entries), dict[str, OutlineEntry]()
    for one in placements:
        entry = first.get(one.kernel)
        if (
            entry
            and entry.speedup
            and (entry.speedup_low or 0.0) > ((best[one.niche].speedup_low or 0.0) if one.niche in best else -math.inf)
        ):
            best[one.niche] = entry
    return best
