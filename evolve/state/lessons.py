"""What a run has learnt, in sentences that cite their evidence. They are counted from the children, without a model.

New lessons are drawn after every `EVERY` attempts; in between, a lesson that newer children contradict is dropped.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Attempts after which new lessons are drawn, and how many lessons there are at most.
EVERY, MOST = 25, 10
#: Children of a pair that are remembered, the newest.
REMEMBERED = 12
#: A gain (log) that is one: less is within what processes differ by.
GAINED = math.log(1.01)
#: Children with a gain that a good lesson wants, without one that a bad lesson wants; and how many newer children
#: without a gain contradict a good one. A single newer gain contradicts a bad one.
GOOD, BAD, CONTRADICTED = 2, 3, 2
#: Kernels that are cited.
CITED = 3

#: Technique and bottleneck (a class of `evolve.state.normalise`, or "").
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One child of a technique."""

    #: Position among all children of the run.
    number: int
    #: Kernel id; "" when no kernel came of it.
    kernel: str
    #: Log of its speedup over its parent; None when it was not valid.
    gain: float | None
    #: What went wrong; "" for a valid one.
    signature: str = ""

    @property
    def gained(self) -> bool:
        """Whether it was faster than its parent."""
        return self.gain is not None and self.gain >= GAINED


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One sentence."""

    text: str
    pair: Pair
    #: Whether it speaks for the technique.
    pays: bool
    #: Ids of the kernels that it rests on.
    kernels: tuple[str, ...]
    #: Number of the newest child that it knows.
    until: int

    @property
    def line(self) -> str:
        """The sentence with its references."""
        return f"{self.text} [{', '.join(self.kernels)}]" if self.kernels else self.text


def distil(evidence: Mapping[Pair, Sequence[Evidence]]) -> tuple[Lesson, ...]:
    """The lessons of all children that are remembered, those with most evidence first, at most `MOST`."""
    drawn = [lesson for pair, children in evidence.items() if (lesson := _lesson(pair, children)) is not None]
    weight = {pair: len(children) for pair, children in evidence.items()}
    return tuple(sorted(drawn, key=lambda lesson: (-weight[lesson.pair], lesson.pair))[:MOST])


def still_valid(lessons: Iterable[Lesson], evidence: Mapping[Pair, Sequence[Evidence]]) -> tuple[Lesson, ...]:
    """Those lessons that no newer child contradicts."""
    return tuple(lesson for lesson in lessons if not _contradicted(lesson, evidence.get(lesson.pair, ())))


def pair_words(pair: Pair) -> str:
    """``block-tiling against memory``."""
    technique, bottleneck = pair
    return f"{technique} against {bottleneck}" if bottleneck else technique


def percent(gain: float) -> str:
    """A gain (log) as ``+12 %``."""
    return f"{(math.exp(gain) - 1) * 100:+.2g} %"


def _lesson(pair: Pair, children: Sequence[Evidence]) -> Lesson | None:
    gains = {child.kernel: child.gain for child in children if child.gain is not None}
    winners = sorted((child for child in children if child.gained), key=lambda child: -(child.gain or 0.0))
    count = f"{len(children)} children"
    if len(winners) >= GOOD and statistics.median(gains.values()) > 0:
        best = winners[0].gain or 0.0
        text = f"{pair_words(pair)} pays: {len(winners)} of {count} faster than their parents, the best {percent(best)}"
        return _made(text, pair, winners, children, pays=True)
    if winners or len(children) < BAD:
        return None
    if gains:
        best = max(gains.values())
        text = f"{pair_words(pair)} has not paid: {count}, {len(gains)} correct, the best {percent(best)}"
        return _made(text, pair, [child for child in children if child.gain is not None], children, pays=False)
    signatures = [child.signature for child in children if child.signature]
    most = f", mostly {statistics.mode(signatures)}" if signatures else ""
    text = f"{pair_words(pair)} has not worked: {count}, none correct{most}"
    return _made(text, pair, children, children, pays=False)


def _made(text: str, pair: Pair, cited: Sequence[Evidence], children: Sequence[Evidence], *, pays: bool) -> Lesson:
    kernels = tuple(dict.fromkeys(child.kernel for child in cited if child.kernel))[:CITED]
    return Lesson(text=text, pair=pair, pays=pays, kernels=kernels, until=children[-1].number)


def _contradicted(lesson: Lesson, children: Sequence[Evidence]) -> bool:
    newer = [child.gained for child in children if child.number > lesson.until]
    if lesson.pays:
        return len(newer) >= CONTRADICTED and not any(newer[-CONTRADICTED:])
    return any(newer)
