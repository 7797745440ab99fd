"""From paired rounds to a speedup with an interval.

The unit is a round, never a call: calls of one block share the machine's state and are not independent. A round
gives s = log(t_reference / t_kernel) from the medians of its two blocks, which were timed one after the other, so
that what changes slowly (clocks, temperature, neighbours) falls out. The estimate over rounds is Hodges and
Lehmann's (1963), the median of all pairwise means: nearly as efficient as the mean, and unmoved by a disturbed round.
The interval is the bootstrap's percentiles over rounds (Efron 1979).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

#: Resamples of the bootstrap: the ends of a 95 % interval then rest on 50 resamples each.
RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Reference time over kernel time."""

    estimate: float
    #: 95 % interval.
    low: float
    high: float


def round_log_ratio(reference_ms: Sequence[float], kernel_ms: Sequence[float]) -> float:
    """log(t_reference / t_kernel) of one round, from the medians of its blocks."""
    return math.log(statistics.median(reference_ms) / statistics.median(kernel_ms))


def speedup_of(log_ratios: Sequence[float], rng: Random) -> Speedup:
    """Speedup and interval over rounds.

    Args:
        log_ratios: one number a round, at least one.
        rng: source of the resamples; the same generator state gives the same interval.
    """
    estimate = hodges_lehmann(log_ratios)
    resampled = sorted(hodges_lehmann(rng.choices(log_ratios, k=len(log_ratios))) for _ in range(RESAMPLES))
    tail = RESAMPLES // 40
    # With few rounds the percentiles may miss the estimate itself by rounding; an interval holds its estimate.
    low, high = min(resampled[tail], estimate), max(resampled[-tail - 1], estimate)
    return Speedup(estimate=math.exp(estimate), low=math.exp(low), high=math.exp(high))


def hodges_lehmann(values: Sequence[float]) -> float:
    """Median of the means of all pairs, each value paired with itself too."""
    means = [(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))]
    return statistics.median(means)
