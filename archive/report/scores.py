"""Scores of a benchmark, from the result of each problem; pure functions.

fast_p is KernelBench's (Ouyang et al. 2025, section 3): the share of problems whose kernel is correct and more than p
times as fast as a baseline, so that fast_0 is the share of correct ones. A problem without a correct kernel counts
there. Geometric means and medians are over the correct kernels alone. A problem that cannot be judged counts in
neither: it says nothing about who wrote the kernels.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

#: What a speedup is over: eager with strict flags, eager with PyTorch's default flags, the fastest baseline at the
#: precision of the task.
BASELINES = ("eager", "default", "best")
#: Thresholds of fast_p that every score has.
THRESHOLDS = (0.0, 1.0, 2.0)
#: Resamples of a bootstrap, the share of them that its interval holds, and the fewest values for one.
_RESAMPLES = 2000
_CONFIDENCE = 0.95
_LEAST_VALUES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """What a benchmark found about one problem."""

    #: As `--problem` takes it; its level, and its name in the level.
    problem: str
    level: str
    title: str
    #: Why no kernel of it can be judged; "" when it was judged.
    not_judged: str = ""
    #: Kinds of its flaws (`configs.flaws`, or flags of its card).
    flaws: tuple[str, ...] = ()
    #: Id of the best correct kernel; None when there is none, and then what the last failure was.
    kernel: str | None = None
    failure: str = ""
    #: Its speedup over eager with strict flags, with the 95 % interval; None without a correct kernel.
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    #: Over eager with default flags, and over the fastest baseline; None also where these were not measured.
    over_default: float | None = None
    over_best: float | None = None
    best_baseline: str | None = None
    time_ms: float | None = None
    precision_class: str | None = None
    #: Time at the roofline of the kernel's precision class over the kernel's time, and over eager's, at most 1; None
    #: where it is unknown.
    floor_share: float | None = None
    eager_floor_share: float | None = None
    #: The run that found the kernel; None for a kernel that was given.
    run: str | None = None
    #: Kernels judged, and correct ones among them.
    evaluations: int = 0
    correct: int = 0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    tokens: int = 0
    #: None when a price is unknown.
    dollars: float | None = 0.0

    def over(self, baseline: str) -> float | None:
        """The speedup over one of `BASELINES`."""
        return {"eager": self.speedup, "default": self.over_default, "best": self.over_best}[baseline]


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Share of the problems that are more than `p` times as fast; None is a problem without a correct kernel."""
    return sum(speedup is not None and speedup > p for speedup in speedups) / len(speedups)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that at least one of `k` kernels is correct, of `n` of which so many are (Chen et al. 2021, equation 1).

    With fewer than `k` kernels, of all of them.
    """
    return 1.0 - math.comb(n - correct, min(k, n)) / math.comb(n, min(k, n))


def interval(values: Sequence[float], statistic: Callable[..., Any]) -> tuple[float | None, float | None]:
    """The 95 % percentile bootstrap interval of a statistic of positive numbers; (None, None) of fewer than three.

    The statistic takes an array and an axis, and is applied to logarithms. The resamples are the same in every call.
    """
    if len(values) < _LEAST_VALUES:
        return None, None
    drawn = numpy.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    found = statistic(numpy.log(numpy.asarray(values))[drawn], axis=1)
    tail = 50 * (1 - _CONFIDENCE)
    low, high = numpy.exp(numpy.percentile(found, [tail, 100 - tail]))
    return float(low), float(high)


def score(
    results: Sequence[ProblemResult], thresholds: Iterable[float] = (), pass_at: Iterable[int] = ()
) -> dict[str, Any]:
    """The score of some problems: the same names whatever they are; None where nothing is known."""
    judged = [one for one in results if not one.not_judged]
    correct = [one for one in judged if one.kernel is not None]
    dollars = [one.dollars for one in results]
    shares = [one.floor_share for one in correct if one.floor_share is not None]
    every = sorted({*THRESHOLDS, *thresholds})
    found: dict[str, Any] = {"n": len(judged), "not_judged": len(results) - len(judged), "correct": len(correct)}
    chances = {k: [pass_at_k(one.evaluations, one.correct, k) for one in judged] for k in sorted(set(pass_at))}
    found |= {f"pass_{k}": statistics.fmean(of) if of else None for k, of in chances.items()}
    for baseline in BASELINES:
        suffix = "" if baseline == "eager" else f"_{baseline}"
        known = [ratio for one in correct if (ratio := one.over(baseline)) is not None]
        # One kernel without a number would make every share too small.
        speedups = [one.over(baseline) for one in judged] if len(known) == len(correct) else []
        found |= {f"fast_{p:g}{suffix}": fast_p(speedups, p) if speedups else None for p in every}
        found |= _averages(known if speedups else [], baseline)
    return found | {
        "precision_classes": dict(Counter(one.precision_class or "unknown" for one in correct).most_common()),
        "floor_share": statistics.median(shares) if shares else None,
        "evaluations": sum(one.evaluations for one in results),
        "device_seconds": sum(one.device_seconds for one in results),
        "wall_seconds": sum(one.wall_seconds for one in results),
        "tokens": sum(one.tokens for one in results),
        "dollars": None if None in dollars else sum(dollar or 0.0 for dollar in dollars),
    }


def scores(
    results: Sequence[ProblemResult], thresholds: Iterable[float] = (), pass_at: Iterable[int] = ()
) -> dict[str, Any]:
    """The scores of each level, of all problems, and of those without a known flaw."""
    asked = tuple(thresholds), tuple(pass_at)
    levels = {
        level: [one for one in results if one.level == level] for level in dict.fromkeys(r.level for r in results)
    }
    return {
        "levels": {level: score(found, *asked) for level, found in levels.items()},
        "all": score(results, *asked),
        "without_flawed": score([one for one in results if not one.flaws], *asked),
    }


def share_names(row: Mapping[str, Any]) -> list[str]:
    """The names of a score's shares over eager: fast_p and pass_k, without those over other baselines."""
    return [name for name in row if name.startswith(("fast_", "pass_")) and name.count("_") == 1]


def _averages(values: Sequence[float], baseline: str) -> dict[str, float | None]:
    """Geometric mean and median of speedups over a baseline, with intervals."""
    found: dict[str, float | None] = {}
    for name, average, statistic in (
        ("geomean", statistics.geometric_mean, numpy.mean),
        ("median", statistics.median, numpy.median),
    ):
        low, high = interval(values, statistic)
        found |= {
            f"{name}_{baseline}": average(values) if values else None,
            f"{name}_{baseline}_low": low,
            f"{name}_{baseline}_high": high,
        }
    return found
