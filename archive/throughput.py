"""The throughput of a run and where its time was spent, from the archive alone.

Every evaluation records its start and the seconds of each phase. Phases are placed end to end from the start, in their
order: when an evaluation enters a phase twice, the interval is shifted by its waiting time, but the sums are exact.

The *wall time* lasts from the first start to the last end, without the pauses between sessions. A device is *busy*
while at least one evaluation is in a phase that uses it, alone or shared: the union of these intervals. It is *alone*
for the sum of the exclusive phases, which cannot overlap. Contests are not evaluations: they are in the gaps.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median

from kbevolve.archive.records import Birth, BirthState, Evaluation, Run, Verdict

#: Phases that use the device, shared with other evaluations and alone.
SHARED_PHASES, ALONE_PHASES = ("prepare", "trials", "profile"), ("timing",)
DEVICE_PHASES = (*SHARED_PHASES, *ALONE_PHASES)
#: An evaluation's seconds outside its phases.
OVERHEAD = "overhead"
#: Seconds without any evaluation that count as a pause between sessions, not as wall time. A request to a silent model
#: ends after 25 minutes by default (`llm.timeout` and 4 retries).
PAUSE_SECONDS = 1800.0
_HOUR = 3600.0

#: Beginning and end, in seconds since 1970.
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """The cost of one phase."""

    name: str
    #: Evaluations with this phase; the figures are theirs.
    children: int
    #: Seconds a child: mean, median and 90th percentile.
    mean: float
    median: float
    p90: float
    #: Seconds in all, and their share of the seconds of all evaluations, 0 to 1.
    total: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The use of one device."""

    #: Fingerprint, and which of several; "" when not recorded.
    device: str
    device_instance: str
    children: int
    #: Share of the wall time in which it was used, and in which one kernel used it alone, 0 to 1.
    busy: float
    alone: float
    #: The longest stretch in which no evaluation used it, in seconds.
    longest_gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The work of a run and its speed."""

    run: str
    problem: str
    device: str
    #: Births, and those of them that are duplicates, without code, and exhausted.
    births: int
    duplicates: int
    without_code: int
    exhausted: int
    #: Duplicates that differ in names or layout; near-duplicates of failures, which were not judged.
    renamed: int
    near_duplicates: int
    #: Kernels by verdict, the best first, including those that an earlier run judged.
    verdicts: Mapping[str, int]
    #: Kernels with the verdict of an identical binary.
    identical_binaries: int
    #: Kernels judged in this run, with recorded times: the figures below are about them.
    judged: int
    #: Kernels judged by an earlier run, and kernels judged by a version that recorded no times.
    judged_earlier: int
    untimed: int
    #: Seconds of wall time, and of the pauses excluded from it.
    wall: float
    pauses: float
    #: Seconds of all sessions: also starting judges, contests after the last evaluation, and baselines. 0 if unknown.
    sessions: float
    #: Kernels judged an hour of wall time; None while there is none.
    children_per_hour: float | None
    #: Mean number of concurrent evaluations, and the share of the wall time with none.
    side_by_side: float
    idle: float
    #: The longest stretch with none, in seconds.
    longest_gap: float
    #: In the order in which an evaluation goes through them, with `OVERHEAD` last.
    phases: tuple[PhaseTime, ...]
    devices: tuple[DeviceUse, ...]
    #: Seconds of proposing, and tokens sent and received.
    proposing: float
    prompt_tokens: int
    completion_tokens: int


def device_seconds_of(evaluation: Evaluation) -> float:
    """Seconds that an evaluation used a device."""
    return sum(evaluation.execution.phases.get(name, 0.0) for name in DEVICE_PHASES)


def throughput_of(
    run: Run, births: Sequence[Birth], evaluations: Iterable[Evaluation], *, sessions: float = 0.0
) -> Throughput:
    """The throughput of a run, from its births and the first evaluation of each of its kernels under its conditions.

    `sessions` are the seconds of all its sessions.
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
        near_duplicates=states[BirthState.NEAR_DUPLICATE],
        without_code=states[BirthState.NO_CODE],
        exhausted=states[BirthState.EXHAUSTED],
        verdicts={verdict.name.lower(): verdicts[verdict] for verdict in reversed(Verdict) if verdicts[verdict]},
        identical_binaries=sum(one.compiled.identical_to is not None for one in evaluations),
        judged=len(judged),
        judged_earlier=len(timed) - len(judged),
        untimed=len(evaluations) - len(timed),
        wall=wall,
        pauses=sum(pauses),
        sessions=sessions,
        children_per_hour=len(judged) / wall * _HOUR if wall else None,
        side_by_side=_share(sum(one.execution.seconds for one in judged), wall),
        idle=_share(sum(gaps) - sum(pauses), wall),
        longest_gap=max((gap for gap in gaps if gap <= PAUSE_SECONDS), default=0.0),
        phases=_phases(judged),
        devices=_devices(judged, wall),
        proposing=sum(birth.seconds for birth in births),
        prompt_tokens=sum(birth.prompt_tokens for birth in births),
        completion_tokens=sum(birth.completion_tokens for birth in births),
    )


def _phases(judged: Sequence[Evaluation]) -> tuple[PhaseTime, ...]:
    seconds: dict[str, list[float]] = defaultdict(list)
    # Few kernels have all phases: those with the most say the order.
    for one in sorted(judged, key=lambda one: -len(one.execution.phases)):
        for name, spent in one.execution.phases.items():
            seconds[name].append(spent)
    overheads = [max(0.0, one.execution.seconds - sum(one.execution.phases.values())) for one in judged]
    seconds |= {OVERHEAD: overheads} if judged else {}
    total = sum(map(sum, seconds.values()))
    return tuple(
        PhaseTime(
            name=name,
            children=len(spent),
            mean=fmean(spent),
            median=median(spent),
            p90=sorted(spent)[math.ceil(0.9 * len(spent)) - 1],
            total=sum(spent),
            share=_share(sum(spent), total),
        )
        for name, spent in seconds.items()
    )


def _devices(judged: Sequence[Evaluation], wall: float) -> tuple[DeviceUse, ...]:
    by_device: dict[tuple[str, str], list[Evaluation]] = defaultdict(list)
    for one in judged:
        by_device[one.device, one.execution.device_instance].append(one)
    return tuple(
        _use(device, instance, evaluations, wall) for (device, instance), evaluations in sorted(by_device.items())
    )


def _use(device: str, instance: str, evaluations: Sequence[Evaluation], wall: float) -> DeviceUse:
    used = _union([span for one in evaluations for span in _intervals(one, DEVICE_PHASES)])
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
    """The intervals of an evaluation's phases of these names."""
    found, now = [], evaluation.execution.started_at
    for name, seconds in evaluation.execution.phases.items():
        if name in names and seconds > 0:
            found.append((now, now + seconds))
        now += seconds
    return found


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, as disjoint intervals in order."""
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
