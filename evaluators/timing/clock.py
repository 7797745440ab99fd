"""The second clock: what a worker tells of time is believed only as far as the judge's own clock bears it out.

A timed call is one round trip. The judge measures the whole of it until it has read the output: copying and flushing,
which cost the same for every kernel of a problem, and the call. The reference's process runs the same program and
holds no candidate, so the reference's round trips tell what everything but the call costs. What a kernel's round trips
take beyond that and beyond its own times is time that it did not tell: work on a side stream or in a thread that
somebody had to wait for, a replaced clock, a forged or early reply.

Unlike the slope of many calls against few, this bounds the very calls whose outputs are checked: there is no burst of
unchecked calls in which a kernel could be lazy.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self, TypeVar

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.statistics import block_ms

Looked = TypeVar("Looked")

#: Shares of a kernel's time and of the fastest overhead that may go untold, and milliseconds, by device, of what
#: differs honestly between processes: launches hidden behind the flush, allocations, waking up. On an H200 the fastest
#: round trips of honest kernels and the reference were up to 0.27 ms apart (docs/results/2026-11-21-judge-h200.md).
_UNTOLD_SHARE = 0.1
_UNTOLD_OVERHEAD = 0.05
_UNTOLD_MS = {"cpu": 0.25, "cuda": 0.4}
#: Percentile of the reference's overheads that every round trip is granted. Above the median, for other programs delay
#: some round trips of either process; a kernel gains by untold time only if most of its calls have it.
_GRANTED_PERCENTILE = 75
#: Shares of the round trips whose longest are compared: about the fastest, the fastest quarter, half.
_COMPARED = (0.1, 0.25, 0.5)
#: Standard deviations to each side in the intervals for medians of overheads.
_CERTAIN = 2.6
#: Share of a kernel's blocks whose slowest is what it claims to take. Neither the median of the blocks nor the estimate
#: over them (`timing.statistics.hodges_lehmann`) falls with fewer blocks than these.
_CLAIMED = 0.25
#: Processes that a kernel is timed in before time that was added to its own stands: identical code differs in two.
PROCESSES = 3
#: A reference's calls and round trips take this many times their fastest at most on a machine that does nothing else.
_SLOWED = 1.5
#: Milliseconds of a round trip in which nobody works: a process wakes up, twice.
_WAKING_MS = 0.5
#: Calls within this many times the fastest that make sure of it, and how many of them.
_NEAR = 1.2
_SURE = 3


@dataclass(frozen=True, slots=True)
class Alone:
    """The reference's fastest calls with nothing else there: what other programs on the machine add is known by it."""

    ms: float
    #: Milliseconds of a round trip beside the call.
    overhead_ms: float

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Self:
        """What these calls show of it: the fastest, for nothing makes a call faster than it is."""
        return cls(min(call.ms for call in calls), min(_overhead(call) for call in calls))

    def is_sure(self, calls: Sequence[Call]) -> bool:
        """Whether enough of these calls come near it; what a machine adds that is busy differs."""
        nears = (
            sum(call.ms <= _NEAR * self.ms for call in calls),
            sum(_overhead(call) <= _NEAR * self.overhead_ms for call in calls),
        )
        return min(nears) >= _SURE

    def or_less(self, seen: "Alone") -> "Alone":
        """What holds if both were seen."""
        return Alone(min(self.ms, seen.ms), min(self.overhead_ms, seen.overhead_ms))


def unreported_ms(kernel: Sequence[Call], reference: Sequence[Call]) -> float:
    """Milliseconds by which the median call was longer by the judge's clock than the worker told."""
    overheads = [_overhead(call) for call in reference]
    granted = statistics.quantiles(overheads, n=100)[_GRANTED_PERCENTILE - 1] if len(overheads) > 1 else overheads[0]
    witnessed = statistics.median(max(call.ms, call.wall_ms - granted) for call in kernel)
    return witnessed - statistics.median(call.ms for call in kernel)


def penalty_ms(kernel: Sequence[Sequence[Call]], reference: Sequence[Call], device_type: str, *, alone: Alone) -> float:
    """Milliseconds that the judge adds to each time of a kernel, for they may have been spent on it untold; mostly 0.

    On a busy machine round trips vary by milliseconds, `check_clocks` grants what most of the reference's took, and
    time could hide in what was granted. But whoever hides time that his work needs claims less than even the calls took
    that the machine delayed least, whether he hides it in all calls or only in the few that a block is taken to be. And
    time hidden in most calls shows in the median overhead, which differs honestly by what chance makes of it.

    Args:
        kernel: its calls, block by block.
        reference: the reference's.
        device_type: "cpu" or "cuda".
        alone: the reference with nothing else there.
    """
    calls = list(chain.from_iterable(kernel))
    overhead_ms = min(_low([_overhead(call) for call in reference], min(_COMPARED)), _SLOWED * alone.overhead_ms)
    excess = max(_fastest_trip_ms(calls) - overhead_ms - claimed_ms(kernel), _certain_excess_ms(calls, reference))
    return excess if excess > _tolerated_ms(calls, reference, device_type) else 0.0


def undisturbed_share(reference_ms: float, alone: Alone) -> float:
    """What of the reference's time in a series can be its own.

    Other programs that slow the reference while they leave a kernel alone would make that kernel fast.
    """
    return min(1.0, _SLOWED * alone.ms / reference_ms)


def is_overloaded(trip_ms: float, processor_ms: float) -> bool:
    """Whether the reference, on a CPU, was kept waiting for a processor for much of its round trips.

    Args:
        trip_ms: milliseconds of its median round trip.
        processor_ms: of processor time that its process took in it.
    """
    return trip_ms > _SLOWED * processor_ms + _WAKING_MS


def least_ms(kernel_processor_ms: float, reference_processor_ms: float, reference_ms: float) -> float:
    """Milliseconds that a kernel is believed to take at the least on an overloaded machine.

    Round trips say nothing there: the machine may keep the reference waiting and leave the kernel alone for a whole
    series. Processor time does not depend on waiting, so no kernel gains more than it saves of that.
    """
    return reference_ms * kernel_processor_ms / reference_processor_ms


def until_sure(look: Callable[[], Looked], is_doubtful: Callable[[Looked], bool]) -> Looked:
    """What a look at kernels in fresh processes finds, looked at again in others while time had to be added.

    A kernel that hides time hides it in all of them.
    """
    for _ in range(PROCESSES - 1):
        found = look()
        if not is_doubtful(found):
            return found
    return look()


class ClocksDisagree(Rejection):
    """The judge's clock saw time that the worker did not tell."""


def check_clocks(
    kernel: Sequence[Call], reference: Sequence[Call], device_type: str, *, waited_ms: float = 0.0
) -> None:
    """Compare both clocks.

    A refusal needs certainty: the calls that the machine delayed least show the untold time as well. Time that only
    some of the calls hide is no reason to refuse a kernel on a busy machine, and `penalty_ms` lets none gain by it.

    Args:
        kernel: its calls.
        reference: the reference's.
        device_type: "cpu" or "cuda".
        waited_ms: that the kernel's threads waited for a processor in a round trip: no time that it spent.

    Raises:
        ClocksDisagree: they do.
    """
    tolerated = _tolerated_ms(kernel, reference, device_type)
    excess = min(unreported_ms(kernel, reference), *_excesses(kernel, reference))
    if excess - waited_ms > tolerated:
        raise ClocksDisagree(
            Verdict.REFUSED,
            "not accepted: calls took longer than their timed part; finish all work before forward() returns, on the "
            "current stream",
        )


def _tolerated_ms(kernel: Sequence[Call], reference: Sequence[Call], device_type: str) -> float:
    return max(
        _UNTOLD_MS[device_type],
        _UNTOLD_SHARE * statistics.median(call.ms for call in kernel),
        _UNTOLD_OVERHEAD * min(_overhead(call) for call in reference),
    )


def _excesses(kernel: Sequence[Call], reference: Sequence[Call]) -> list[float]:
    """Milliseconds by which a kernel's overheads exceed the reference's, at each of the shares that are compared."""
    mine, theirs = ([_overhead(call) for call in calls] for calls in (kernel, reference))
    return [_low(mine, share) - _low(theirs, share) for share in _COMPARED]


def _certain_excess_ms(kernel: Sequence[Call], reference: Sequence[Call]) -> float:
    """Milliseconds by which a kernel's median overhead exceeds the reference's at the least.

    Between the ends of intervals for both medians, which are order statistics: no noise, however its tails are, makes a
    difference of identical processes.
    """
    mine, theirs = (sorted(_overhead(call) for call in calls) for calls in (kernel, reference))
    reach = [_CERTAIN * math.sqrt(len(calls)) / 2 for calls in (mine, theirs)]
    low = max(0, math.floor(len(mine) / 2 - reach[0]))
    high = min(len(theirs) - 1, math.ceil(len(theirs) / 2 + reach[1]))
    return mine[low] - theirs[high]


def _fastest_trip_ms(kernel: Sequence[Call]) -> float:
    """Milliseconds, by the judge's clock alone, of the round trips that the machine delayed least."""
    return _low([call.wall_ms for call in kernel], min(_COMPARED))


def claimed_ms(blocks: Sequence[Sequence[Call]]) -> float:
    """Milliseconds that a kernel claims to take by the calls of its blocks."""
    return _low([block_ms([call.ms for call in calls]) for calls in blocks], _CLAIMED)


def _overhead(call: Call) -> float:
    return call.wall_ms - call.ms


def _low(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; for a half the median."""
    if share == 0.5:
        return statistics.median(values)
    return sorted(values)[int(share * len(values))]
