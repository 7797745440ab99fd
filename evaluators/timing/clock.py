"""The second clock: the judge bounds the time that a worker reports by its own clock.

A timed call is one round trip. The judge measures all of it, until it has read the output: the call, and the copies and
the flush around it, which cost the same for every kernel of a problem. The reference's process runs the same program
and holds no candidate, so its round trips show what everything but the call costs (the overhead). If a kernel's round
trips take longer than that overhead and its own reported times together, the rest is unreported time: work on a side
stream or in a thread, a replaced clock, a forged or early reply.

The slope of many calls against few would show the same for other calls. This method bounds the very calls whose outputs
are checked, so there is no burst of unchecked calls in which a kernel could be lazy.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self, TypeVar

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.statistics import block_ms

Measured = TypeVar("Measured")

#: Unreported time is tolerated up to the largest of three: these shares of a kernel's time and of the fastest overhead,
#: and these milliseconds by device, which cover what differs between honest processes: launches hidden behind the
#: flush, allocations, waking up. On an H200 the fastest round trips of honest kernels and the reference differed by up
#: to 0.27 ms (docs/results/2026-11-21-judge-h200.md).
_TOLERATED_SHARE = 0.1
_TOLERATED_OVERHEAD = 0.05
_TOLERATED_MS = {"cpu": 0.25, "cuda": 0.4}
#: Percentile of the reference's overheads that is granted to every round trip. It is above the median, because other
#: programs delay some round trips of either process; a kernel gains by unreported time only if most calls have it.
_GRANTED_PERCENTILE = 75
#: Quantiles at which the overheads of kernel and reference are compared: near the fastest, the first quartile, the
#: median.
_COMPARED = (0.1, 0.25, 0.5)
#: Half width, in standard deviations, of the intervals for medians of overheads.
_SIGMAS = 2.6
#: A kernel claims to take what its slowest block among this share of its fastest blocks took. Neither the median of the
#: blocks nor the estimate over them (`timing.statistics.hodges_lehmann`) can fall with fewer false blocks.
_CLAIMED = 0.25
#: Processes in which a kernel is timed before a penalty is final: identical code differs between two processes.
PROCESSES = 3
#: On a machine with no other load, the reference's calls and round trips take at most this many times their fastest.
_SLOWED = 1.5
#: Milliseconds of a round trip that are no processor time: a process is woken twice.
_WAKING_MS = 0.5
#: The fastest call is certain when this many calls took at most this many times as long.
_NEAR = 1.2
_CERTAIN_CALLS = 3


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """The reference's fastest call and round trip; a longer one was delayed by other programs on the machine."""

    #: Milliseconds of a call, and of the rest of its round trip.
    ms: float
    overhead_ms: float

    @classmethod
    def of(cls, calls: Sequence[Call]) -> Self:
        """The fastest of these calls and of their overheads: nothing makes a call faster than it is."""
        return cls(min(call.ms for call in calls), min(_overhead(call) for call in calls))

    def is_certain(self, calls: Sequence[Call]) -> bool:
        """Whether enough of these calls are near it: the delays on a busy machine differ from call to call."""
        near = (
            sum(call.ms <= _NEAR * self.ms for call in calls),
            sum(_overhead(call) <= _NEAR * self.overhead_ms for call in calls),
        )
        return min(near) >= _CERTAIN_CALLS

    def or_less(self, other: "Undisturbed") -> "Undisturbed":
        """The smaller values of the two."""
        return Undisturbed(min(self.ms, other.ms), min(self.overhead_ms, other.overhead_ms))


class ClocksDisagree(Rejection):
    """The judge's clock saw time that the worker did not report."""


def check_clocks(
    kernel: Sequence[Call], reference: Sequence[Call], device_type: str, *, waited_ms: float = 0.0
) -> None:
    """Compare both clocks.

    A refusal needs certainty: the calls that the machine delayed least must show the unreported time, too. A kernel
    that hides time in some of its calls only is not refused on a busy machine, but `penalty_ms` takes its gain away.

    Args:
        kernel: its calls.
        reference: the reference's.
        device_type: "cpu" or "cuda".
        waited_ms: by the kernel's threads for a processor, in one round trip.

    Raises:
        ClocksDisagree: there is more unreported time than is tolerated.
    """
    excess = min(unreported_ms(kernel, reference), *_excesses(kernel, reference))
    if excess - waited_ms > _tolerated_ms(kernel, reference, device_type):
        raise ClocksDisagree(
            Verdict.REFUSED,
            "not accepted: calls took longer than their timed part; finish all work before forward() returns, on the "
            "current stream",
        )


def unreported_ms(kernel: Sequence[Call], reference: Sequence[Call]) -> float:
    """Milliseconds by which the judge's clock saw the median call take longer than the worker reported."""
    overheads = [_overhead(call) for call in reference]
    granted = statistics.quantiles(overheads, n=100)[_GRANTED_PERCENTILE - 1] if len(overheads) > 1 else overheads[0]
    witnessed = statistics.median(max(call.ms, call.wall_ms - granted) for call in kernel)
    return witnessed - statistics.median(call.ms for call in kernel)


def penalty_ms(
    kernel: Sequence[Sequence[Call]], reference: Sequence[Call], device_type: str, *, undisturbed: Undisturbed
) -> float:
    """Milliseconds that the judge adds to each time of a kernel, because the kernel may have hidden them; mostly 0.

    On a busy machine round trips vary by milliseconds. `check_clocks` grants what most of the reference's took, so time
    could be hidden there. But a kernel that hides time claims less than its least delayed round trips took, whether it
    hides the time in all calls or only in the few that represent a block. And time that is hidden in most calls shows
    in the median overhead, which between honest processes differs by chance only.

    `kernel` holds its calls block by block.
    """
    calls = list(chain.from_iterable(kernel))
    overheads = [_overhead(call) for call in reference]
    overhead_ms = min(_quantile(overheads, min(_COMPARED)), _SLOWED * undisturbed.overhead_ms)
    fastest_trip_ms = _quantile([call.wall_ms for call in calls], min(_COMPARED))
    excess = max(fastest_trip_ms - overhead_ms - claimed_ms(kernel), _certain_excess_ms(calls, reference))
    return excess if excess > _tolerated_ms(calls, reference, device_type) else 0.0


def claimed_ms(blocks: Sequence[Sequence[Call]]) -> float:
    """Milliseconds that a kernel claims to take by the calls of its blocks."""
    return _quantile([block_ms([call.ms for call in calls]) for calls in blocks], _CLAIMED)


def undisturbed_share(reference_ms: float, undisturbed: Undisturbed) -> float:
    """Largest credible share of the reference's own work in its time; the rest is delay by other programs.

    Otherwise programs that delay the reference and not the kernel would make that kernel look fast.
    """
    return min(1.0, _SLOWED * undisturbed.ms / reference_ms)


def is_overloaded(trip_ms: float, processor_ms: float) -> bool:
    """Whether the reference, on a CPU, waited for a processor for much of its median round trip."""
    return trip_ms > _SLOWED * processor_ms + _WAKING_MS


def least_ms(kernel_processor_ms: float, reference_processor_ms: float, reference_ms: float) -> float:
    """The shortest time of a kernel that the judge believes on an overloaded machine, in milliseconds.

    Round trips show nothing there: the machine may delay the reference and not the kernel for all rounds. Processor
    time does not depend on waiting, so a kernel gains at most what it saves of that.
    """
    return reference_ms * kernel_processor_ms / reference_processor_ms


def repeat_while(is_doubtful: Callable[[Measured], bool], measure: Callable[[], Measured]) -> Measured:
    """Measure in fresh processes until the result is not doubtful, at most `PROCESSES` times.

    A kernel that hides time hides it in every process; a busy machine does not disturb all of them.
    """
    for _ in range(PROCESSES - 1):
        if not is_doubtful(found := measure()):
            return found
    return measure()


def _tolerated_ms(kernel: Sequence[Call], reference: Sequence[Call], device_type: str) -> float:
    return max(
        _TOLERATED_MS[device_type],
        _TOLERATED_SHARE * statistics.median(call.ms for call in kernel),
        _TOLERATED_OVERHEAD * min(_overhead(call) for call in reference),
    )


def _excesses(kernel: Sequence[Call], reference: Sequence[Call]) -> list[float]:
    """Milliseconds by which a kernel's overheads exceed the reference's, at each quantile that is compared."""
    mine, theirs = ([_overhead(call) for call in calls] for calls in (kernel, reference))
    return [_quantile(mine, share) - _quantile(theirs, share) for share in _COMPARED]


def _certain_excess_ms(kernel: Sequence[Call], reference: Sequence[Call]) -> float:
    """Lower bound of the milliseconds by which a kernel's median overhead exceeds the reference's.

    It is the distance of the intervals for both medians. Their ends are order statistics, so that noise with any tails
    does not make identical processes differ.
    """
    mine, theirs = (sorted(_overhead(call) for call in calls) for calls in (kernel, reference))
    reach = [_SIGMAS * math.sqrt(len(calls)) / 2 for calls in (mine, theirs)]
    low = max(0, math.floor(len(mine) / 2 - reach[0]))
    high = min(len(theirs) - 1, math.ceil(len(theirs) / 2 + reach[1]))
    return mine[low] - theirs[high]


def _overhead(call: Call) -> float:
    return call.wall_ms - call.ms


def _quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; for a half the median."""
    return statistics.median(values) if share == 0.5 else sorted(values)[int(share * len(values))]
