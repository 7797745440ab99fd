"""Strategies at one budget, as numbers: speedup by evaluations, and cost.

The best is the kernel whose speedup has the highest lower end of its 95 % interval, and that lower end is what it
counts with, as for the islands: so no line ever falls. Speedups are averaged as logarithms, so that 2× and 0.5× are 1×
on the average; intervals are Student's over the seeds. The seeds of two strategies are paired: they begin from the same
kernels, and are compared by the ratio at each seed.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Birth, BirthState, Operator, Verdict
from kbevolve.archive.report.curves import Curve
from kbevolve.archive.throughput import device_seconds_of

#: 97.5 % points of Student's t from one degree of freedom on; beyond the last the normal one's is 3 % off at most.
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
      2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
_NORMAL = 1.96
#: Fewest seeds for an interval: with two it would be 12.7 standard errors wide on either side.
LEAST_SEEDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A factor, averaged over seeds."""

    #: Geometric mean.
    mean: float
    #: Its 95 % interval; None with fewer than three seeds.
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One run: its speedup by evaluations, and its cost."""

    #: Id of the run, its strategy and its seed.
    run: str
    strategy: str
    seed: int
    #: Speedup of the best so far (lower end of its 95 % interval) after 1, 2, … evaluations,
    #: starting kernels included; None while nothing is correct.
    best: tuple[float | None, ...]
    #: The published speedup; None while nothing is correct.
    published: float | None
    #: Whether that is a confirmed speedup.
    confirmed: bool
    #: Births without the starting kernels; of them kernels judged, kernels correct, and duplicates.
    children: int
    judged: int
    correct: int
    duplicates: int
    #: Tokens sent and received by model.
    tokens: Mapping[str, tuple[int, int]]
    #: Seconds that its evaluations used a device, including evaluations by earlier runs.
    device_seconds: float

    @property
    def evaluations(self) -> int:
        """Kernels judged, starting kernels included."""
        return len(self.best)

    def at(self, evaluations: int) -> float | None:
        """Speedup of the best after so many evaluations; a run that ended before keeps its last value."""
        return self.best[min(evaluations, len(self.best)) - 1] if self.best else None


def track(curve: Curve, births: Iterable[Birth], *, strategy: str) -> Track:
    """The track of a run, from its curve and all its births."""
    steps = {step.point.evaluation.kernel: step.point.evaluation.timing.speedup_low for step in curve.steps}
    best: list[float | None] = []
    for point in curve.points:
        best.append(steps.get(point.evaluation.kernel, best[-1] if best else None))
    children = [birth for birth in births if birth.operator is not Operator.SEED]
    judged = [point.evaluation for point in curve.points if point.birth.operator is not Operator.SEED]
    tokens: dict[str, tuple[int, int]] = {}
    for birth in children:
        if birth.prompt_tokens or birth.completion_tokens:
            sent, received = tokens.get(birth.model, (0, 0))
            tokens[birth.model] = sent + birth.prompt_tokens, received + birth.completion_tokens
    return Track(
        run=curve.run.id,
        strategy=strategy,
        seed=curve.run.seed,
        best=tuple(best),
        published=curve.published,
        confirmed=curve.champion is not None,
        children=len(children),
        judged=len(judged),
        correct=sum(evaluation.verdict is Verdict.CORRECT for evaluation in judged),
        duplicates=sum(birth.state is BirthState.DUPLICATE for birth in children),
        tokens=tokens,
        device_seconds=sum(device_seconds_of(point.evaluation) for point in curve.points),
    )


def checkpoints(budget: int) -> tuple[int, ...]:
    """Numbers of evaluations at which a comparison is read: a quarter of the budget, half of it, and all."""
    return tuple(sorted({max(1, budget // 4), max(1, budget // 2), budget}))


def average(values: Sequence[float | None]) -> Average | None:
    """The geometric mean over seeds; None without seeds, or when one of them has no speedup."""
    if not values or any(not value for value in values):
        return None
    logs = [math.log(value) for value in values if value]
    mean = statistics.fmean(logs)
    if len(logs) < LEAST_SEEDS:
        return Average(mean=math.exp(mean), low=None, high=None)
    freedom = len(logs) - 1
    quantile = _T[freedom - 1] if freedom <= len(_T) else _NORMAL
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Average(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def reached(tracks: Iterable[Track], evaluations: int) -> Average | None:
    """The mean over the runs of a strategy."""
    return average([one.at(evaluations) for one in tracks])


def against(tracks: Iterable[Track], others: Iterable[Track], evaluations: int) -> Average | None:
    """The ratio of two strategies' best speedups, over the seeds that both have."""
    theirs = {one.seed: one.at(evaluations) for one in others}
    pairs = [(one.at(evaluations), theirs[one.seed]) for one in tracks if one.seed in theirs]
    return average([ours / other if ours and other else None for ours, other in pairs])
