"""How fast a run went and where its time was spent, from the archive alone.

Every evaluation says when it began and how many seconds each of its phases took. The phases are laid end to end from
its beginning, in the order in which they are told, to know when each of them was; where an evaluation steps in and out
of a phase that is off by the seconds of its waiting, and by nothing in sums.

The *wall time* lasts from the first beginning to the last end, without the pauses between two sittings. A device is
*busy* while at least one evaluation is in a phase that uses it, alone or beside others: the union of their intervals,
so that what overlaps counts once. It is *alone* for the sum of the phases that have it to themselves, which cannot
overlap. Contests of champions are no evaluations: they are in the gaps.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median

from kbevolve.archive.records import Birth, BirthState, Evaluation, Run, Verdict

#: Phases that hold the device, beside those of others and alone.
SHARED_PHASES, ALONE_PHASES = ("prepare", "trials", "profile"), ("timing",)
#: The phase in which a kernel is compiled and imported.
BUILD_PHASE = "build"
#: What of an evaluation's seconds is in none of its phases.
OVERHEAD = "overhead"
#: Seconds without any evaluation that are a pause between two sittings and no part of the wall time. A model that is
#: asked in vain is given up after 25 minutes by default (`llm.timeout`, and 4 retries); more is nobody working.
PAUSE_SECONDS = 1800.0
_HOUR = 3600.0

#: Beginning and end, in seconds since 1970.
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """What one phase cost."""

    name: str
    #: Evaluations that went through it; the figures are theirs.
    children: int
    #: Seconds a child: in the mean, the middle, and the longest but for one child in ten.
    mean: float
    median: float
    p90: float
    #: Seconds in all, and their share of the seconds of all evaluations, 0 to 1.
    total: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """How busy one device was."""

    #: Fingerprint, and which of several; "" when the evaluations do not tell.
    device: str
    device_instance: str
    children: int
    #: Share of the wall time in which it was used, and of that in which one kernel had it alone, 0 to 1.
    busy: float
    alone: float
    #: The longest stretch in which no evaluation used it, in seconds.
    longest_gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A run as work that was done."""

    run: str
    problem: str
    device: str
    #: Children asked for, and those of them that the run had already, without code, and with nothing left to propose.
    births: int
    duplicates: int
    without_code: int
    exhausted: int
    #: Duplicates that were written under other names; children that nearly repeated a failure and were not judged.
    renamed: int
    familiar: int
    #: Kernels by verdict, the best first, with those that an earlier run had judged.
    verdicts: Mapping[str, int]
    #: Kernels that have the verdict of another one of the same machine code.
    twins: int
    #: Kernels judged in this run with their times told: what all figures below are about.
    judged: int
    #: Kernels of an earlier run's verdict, and kernels judged by a version that told no times.
    remembered: int
    untimed: int
    #: Seconds of wall time, and of the pauses that are left out of it.
    wall: float
    pauses: float
    #: Kernels judged an hour of wall time; None while there is none.
    children_per_hour: float | None
    #: Evaluations under way in the mean, and the share of the wall time in which none was.
    side_by_side: float
    idle: float
    #: The longest stretch in which none was, in seconds.
    longest_gap: float
    #: In the order in which an evaluation goes through them, with `OVERHEAD` last.
    phases: tuple[PhaseTime, ...]
    devices: tuple[DeviceUse, ...]
    #: Seconds that proposers took, and tokens sent and received.
    proposing: float
    prompt_tokens: int
    completion_tokens: int


def throughput_of(
    run: Run, births: Sequence[Birth], evaluations: Iterable[Evaluation], tokens: tuple[int, int]
) -> Throughput:
    """The throughput of a run.

    Args:
        run: which.
        births: its births.
        evaluations: the first evaluation of each of its kernels, under its conditions.
        tokens: prompt and completion tokens that it used.
    """
    evaluations = list(evaluations)
    timed = [one for one in evaluations if one.execution.started_at > 0]
    started = datetime.fromisoformat(run.created).timestamp() if run.created else 0.0
    judged = sorted(
        (one for one in timed if one.execution.started_at >= started), key=lambda one: one.execution.started_at
    )
    spans = [(one.execution.started_at, one.execution.started_at + one.execution.seconds) for one in judged]
    gaps = _gaps(_union(spans))
    pauses = [gap for gap in gaps if gap > PAUSE_SECONDS]
    wall = max(end for _, end in spans) - spans[0][0] - sum(pauses) if spans else 0.0
    verdicts = Counter(one.verdict for one in evaluations)
    states = Counter(birth.state for birth in births)
    return Throughput(
        run=run.id,
        problem=run.problem_name,
        device=run.device,
        births=len(births),
        duplicates=states[BirthState.DUPLICATE],
        renamed=sum(birth.proposed_kernel is not None for birth in births),
        familiar=states[BirthState.NEAR_DUPLICATE],
        without_code=states[BirthState.NO_CODE],
        exhausted=states[BirthState.EXHAUSTED],
        verdicts={verdict.name.lower(): verdicts[verdict] for verdict in reversed(Verdict) if verdicts[verdict]},
        twins=sum(one.compiled.identical_to is not None for one in evaluations),
        judged=len(judged),
        remembered=len(timed) - len(judged),
        untimed=len(evaluations) - len(timed),
        wall=wall,
        pauses=sum(pauses),
        children_per_hour=len(judged) / wall * _HOUR if wall else None,
        side_by_side=_share(sum(one.execution.seconds for one in judged), wall),
        idle=_share(sum(gaps) - sum(pauses), wall),
        longest_gap=max((gap for gap in gaps if gap <= PAUSE_SECONDS), default=0.0),
        phases=_phases(judged),
        devices=_devices(judged, wall),
        proposing=sum(birth.seconds for birth in births),
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
    )


def _phases(judged: Sequence[Evaluation]) -> tuple[PhaseTime, ...]:
    seconds: dict[str, list[float]] = defaultdict(list)
    places: dict[str, list[float]] = defaultdict(list)
    for one in judged:
        for index, (name, spent) in enumerate(one.execution.phases.items()):
            seconds[name].append(spent)
            places[name].append(index / len(one.execution.phases))
        seconds[OVERHEAD].append(max(0.0, one.execution.seconds - sum(one.execution.phases.values())))
        places[OVERHEAD].append(1.0)
    total = sum(map(sum, seconds.values()))
    # Few kernels go through all of them: a phase stands where it stood in the mean.
    order = sorted(seconds, key=lambda name: (name == OVERHEAD, fmean(places[name])))
    return tuple(
        PhaseTime(
            name=name,
            children=len(seconds[name]),
            mean=fmean(seconds[name]),
            median=median(seconds[name]),
            p90=sorted(seconds[name])[math.ceil(0.9 * len(seconds[name])) - 1],
            total=sum(seconds[name]),
            share=_share(sum(seconds[name]), total),
        )
        for name in order
    )


def _devices(judged: Sequence[Evaluation], wall: float) -> tuple[DeviceUse, ...]:
    by_device: dict[tuple[str, str], list[Evaluation]] = defaultdict(list)
    for one in judged:
        by_device[one.device, one.execution.device_instance].append(one)
    return tuple(
        _use(device, instance, evaluations, wall) for (device, instance), evaluations in sorted(by_device.items())
    )


def _use(device: str, instance: str, evaluations: Sequence[Evaluation], wall: float) -> DeviceUse:
    used = _union([span for one in evaluations for span in _intervals(one, (*SHARED_PHASES, *ALONE_PHASES))])
    alone = sum(one.execution.phases.get(name, 0.0) for one in evaluations for name in ALONE_PHASES)
    return DeviceUse(
        device=device,
        device_instance=instance,
        children=len(evaluations),
        busy=_share(sum(end - begin for begin, end in used), wall),
        alone=_share(alone, wall),
        longest_gap=max((gap for gap in _gaps(used) if gap <= PAUSE_SECONDS), default=0.0),
    )


def _intervals(evaluation: Evaluation, names: Sequence[str]) -> list[Interval]:
    """When an evaluation was in the phases of these names."""
    found, now = [], evaluation.execution.started_at
    for name, seconds in evaluation.execution.phases.items():
        if name in names and seconds > 0:
            found.append((now, now + seconds))
        now += seconds
    return found


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals that do not touch, in order."""
    union: list[Interval] = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union


def _gaps(union: Sequence[Interval]) -> list[float]:
    """Seconds between the intervals of a union."""
    return [later[0] - earlier[1] for earlier, later in pairwise(union)]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
