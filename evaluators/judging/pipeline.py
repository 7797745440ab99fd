"""One kernel before the judge: read, build, try, time, profile; the first that fails ends it."""

import math
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.syntax import parse
from kbevolve.evaluators.analysis.roofline import roofline_of
from kbevolve.evaluators.builds.resources import completed, resources_of
from kbevolve.evaluators.builds.traits import merged_traits
from kbevolve.evaluators.candidate.remote import RemoteKernel
from kbevolve.evaluators.candidate.side_effects import left_threads
from kbevolve.evaluators.candidate.trials import run_trials
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.feedback.profile import read_profile
from kbevolve.evaluators.judging.context import Bench, Seat
from kbevolve.evaluators.judging.paired_timing import (
    REFERENCE,
    Round,
    disturbs,
    hold_believed,
    log_ratios,
    measurements,
    time_ms,
)
from kbevolve.evaluators.judging.phases import Phases
from kbevolve.evaluators.lint import lint
from kbevolve.evaluators.lint.streams import may_use_several
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.baselines import best, over_best, recall
from kbevolve.evaluators.timing.clock import ClocksDisagree
from kbevolve.evaluators.timing.rounds import Plan, plan_for
from kbevolve.evaluators.timing.statistics import enough, speedup_of, standing_of

#: A kernel that took this many times the time of the reference, or of the best kernel here, in each of the first rounds
#: is not timed any longer: nothing rests on its number.
CLEARLY_SLOW = 2.0
#: Rounds after which that is asked.
_FIRST_ROUNDS = 3
#: A kernel that reached at most this share of the best one here in each round so far needs no narrower interval than
#: this: it is no champion, and among parents one percent decides nothing. Most children are behind.
_BEHIND = 0.9
_BEHIND_INTERVAL = 0.01
#: Whose calls took this many times the reference's in the trials is timed call by call at first.
_HOPELESS = 2 * CLEARLY_SLOW
#: Rounds may take this many times the seconds that their calls are given: where inputs take long to draw and outputs to
#: compare, a narrower interval is not worth the wait.
_ROUNDS_OVER_CALLS = 3.0
#: Kernels this close to the best one here are profiled: the profiler costs up to a second, and only parents need it.
_WORTH_PROFILING = 0.9
#: Tag of a kernel whose times were raised (`timing.clock.penalty_ms`), or that was refused for what would be added.
UNREPORTED = "unreported-time"
#: Tag of a kernel beside which the reference was slower than alone (`timing.series.disturbs`).
PENDING_WORK = "pending-work"
#: Name of the only kernel in an evaluation, beside the reference.
KERNEL = "kernel"


def blank(problem: Problem, kernel: Kernel, device: Device, precision: str) -> Evaluation:
    """An evaluation that found nothing yet."""
    return Evaluation(
        kernel=kernel.id,
        problem=problem.id,
        device=device.fingerprint,
        precision=precision,
        verdict=Verdict.CORRECT,
        started_at=time.time(),
        device_instance=f"{platform.node()}/{device.torch_name}",
    )


def read(
    problem: Problem, kernel: Kernel, found: Evaluation, settings: EvaluationSettings, device: Device
) -> Evaluation:
    """Tags from the source, which is refused when it is no candidate, or holds what has no honest use."""
    _check_format(kernel.source)
    reference = problem.source_for(device.type)
    seen = lint(kernel.source, allow_library=settings.allow_library, reference_source=reference)
    if seen.refusal:
        raise Rejection(Verdict.REFUSED, seen.refusal, tags=seen.tags)
    return replace(found, tags=seen.tags)


def check_card(bench: Bench, found: Evaluation) -> Evaluation:
    """Tags from the problem's card; a degenerate problem is judged only when that was asked for."""
    found = replace(found, tags=(*found.tags, *bench.prepared.tags, *bench.card.flags))
    if bench.card.degenerate and not bench.court.settings.force:
        why = bench.card.flags["degenerate"].rstrip(".")
        raise Rejection(
            Verdict.REFUSED,
            f"the problem is degenerate: {why}; change its inputs or sizes, or judge it all the same with --force",
            tags=found.tags,
        )
    return found


def hear(bench: Bench, kernel: Kernel, found: Evaluation, phases: Phases) -> Evaluation:
    """Everything that needs a process for the kernel.

    Raises:
        Rejection: the kernel failed.
        EvaluatorError: the reference did, or no worker can be started.
    """
    with phases("worker"):
        seat = bench.seat(kernel.source, one_stream=not may_use_several(kernel.source, found.tags))
    unheard = found
    held: list[Round] = []
    try:
        seat.worker.deadline = time.monotonic() + bench.court.settings.total_seconds
        found = replace(found, sandbox=seat.worker.sandbox)
        build(seat, phases)
        built_alone = seat.worker.built_alone
        code = bench.twins.code_of(kernel.source, seat.worker.built, built_alone=built_alone)
        found = replace(found, binary_hash=code)
        if (known := bench.twins.verdict(found)) is not None:
            return known
        found, kernel_ms = admit(bench, seat, found, phases, room=bench.room)
        if found.verdict < Verdict.CORRECT:
            return found
        if not built_alone:  # else there is code that nobody has looked into
            told = seat.remote.traits() if bench.device.type == "cuda" else None
            found = replace(found, traits=merged_traits(seat.worker.built, told))
        with phases("timing"):
            held = time_beside_reference(bench, seat.remote, kernel_ms, found.precision_class)
        found = _profile(bench, seat.remote, _conclude(bench, held, found), phases)
        if seat.worker.processes > 1:
            found = replace(found, tags=(*found.tags, "leaked-processes"))
    except ClocksDisagree as failure:
        return replace(unheard, verdict=failure.verdict, message=failure.message, tags=(*found.tags, UNREPORTED))
    except Rejection as failure:
        raise Rejection(failure.verdict, failure.message, tags=failure.tags or found.tags) from None
    finally:
        with phases("cleanup"):
            seat.clear()
    if disturbs(bench, held):
        return replace(
            unheard,
            verdict=Verdict.REFUSED,
            message="not accepted: work of it was still on the device after its calls",
            tags=(*found.tags, PENDING_WORK),
        )
    bench.best_speedup = max(bench.best_speedup, found.speedup_low or 0.0)
    return found


def is_doubtful(heard: Evaluation) -> bool:
    """Whether a busy machine may have done what the kernel is accused of; then others of its processes are asked."""
    return UNREPORTED in heard.tags or PENDING_WORK in heard.tags


def build(seat: Seat, phases: Phases) -> None:
    """Import a kernel, and build all that it asks for then.

    Raises:
        Rejection: it cannot be imported, or does not compile.
    """
    with phases("build"), seat.remote.on_device():
        seat.remote.load()


def admit(
    bench: Bench,
    seat: Seat,
    found: Evaluation,
    phases: Phases,
    *,
    room: AbstractContextManager[object] | None = None,
) -> tuple[Evaluation, float]:
    """Try a kernel that is built; also the milliseconds of its fastest call.

    Args:
        bench: the problem.
        seat: the kernel.
        found: what is known of it by now.
        phases: told what takes how long.
        room: entered before it gets memory, left when its seat is cleared; None where there is room for all.
    """
    if room is not None:
        with phases("memory wait"):
            waiting = time.monotonic()
            seat.room.enter_context(room)
            seat.worker.deadline += time.monotonic() - waiting  # others' memory, not the kernel's fault
    with phases("trials"):
        with seat.remote.on_device():
            seat.remote.lend()
        found, kernel_ms = run_trials(seat.remote, bench.prepared, found)
    if "prepacked-weights" in found.tags and not bench.court.settings.allow_prepacked:
        raise Rejection(
            Verdict.REFUSED,
            "not accepted: it keeps weights in a form of its own; read the parameters in each call",
            tags=found.tags,
        )
    return found, kernel_ms


def time_beside_reference(
    bench: Bench, remote: RemoteKernel, kernel_ms: float, precision_class: str | None
) -> list[Round]:
    """Paired rounds of a kernel and the reference, until its interval is narrow enough or it is clearly slow."""
    settings, most_calls = bench.court.settings, bench.prepared.most_calls
    plans: dict[str, Plan] = {
        name: plan_for(call_ms, settings, most_calls=most_calls)
        for name, call_ms in ((REFERENCE, bench.alone.ms), (KERNEL, kernel_ms))
    }
    least = plans[KERNEL].least_rounds
    patience = time.monotonic() + _ROUNDS_OVER_CALLS * settings.timing_seconds

    def is_enough(held: Sequence[Round]) -> bool:
        ratios = log_ratios(held, KERNEL)
        if _is_clearly_slow(ratios, bench.best_speedup):
            return True
        behind = _is_behind(ratios, bench.best_speedup)
        interval = max(settings.interval, _BEHIND_INTERVAL) if behind else settings.interval
        over = time.monotonic() > patience or enough(ratios, interval)
        return over and len(ratios) >= (min(least, _FIRST_ROUNDS) if behind else least)

    def hold(plans: Mapping[str, Plan]) -> list[Round]:
        kernels = {REFERENCE: bench.reference.remote, KERNEL: remote}
        return hold_believed(bench, kernels, plans, {KERNEL: precision_class}, is_enough=is_enough)

    if kernel_ms > _HOPELESS * bench.alone.ms:
        glance = hold({name: replace(plan, calls=1, rounds=_FIRST_ROUNDS) for name, plan in plans.items()})
        if _is_clearly_slow(log_ratios(glance, KERNEL), bench.best_speedup):
            return glance
    return hold(plans)


def _is_clearly_slow(ratios: Sequence[float], best: float) -> bool:
    return len(ratios) == _FIRST_ROUNDS and max(ratios) < math.log(max(best, 1.0) / CLEARLY_SLOW)


def _is_behind(ratios: Sequence[float], best: float) -> bool:
    return best > 0 and max(ratios) < math.log(_BEHIND * best)


def _conclude(bench: Bench, held: Sequence[Round], found: Evaluation) -> Evaluation:
    """The numbers of an evaluation from its rounds."""
    court, ratios = bench.court, log_ratios(held, KERNEL)
    # Seeded by the kernel: an interval computed again from the archived blocks comes out the same.
    speedup = speedup_of(ratios, Random(found.kernel))
    court.repeatability.note(found.problem, found.kernel, speedup)
    known = recall(court.disk_cache, problem=found.problem, device=court.device, precision=court.settings.precision)
    kernel_ms = time_ms(held, KERNEL)
    tags = {
        "clearly-slow": _is_clearly_slow(ratios, bench.best_speedup),
        "leaked-threads": any(left_threads(call) for blocks in held for call in blocks[KERNEL].calls),
        UNREPORTED: any(blocks[KERNEL].penalty_ms for blocks in held),
        "beyond-roofline": bench.is_beyond_roofline(kernel_ms, found.precision_class),
    }
    return replace(
        found,
        time_ms=kernel_ms,
        reference_ms=time_ms(held, REFERENCE),
        speedup=speedup.estimate,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        comparison=standing_of(speedup.low, speedup.high, court.repeatability.tie(found.problem)),
        speedup_best=over_best(speedup.estimate, known) if known else None,
        best_baseline=best(known).name if known else None,
        tags=(*found.tags, *(tag for tag, holds in tags.items() if holds)),
        blocks=tuple(measurements(held, {REFERENCE: "reference", KERNEL: "child"})),
    )


def _profile(bench: Bench, remote: RemoteKernel, found: Evaluation, phases: Phases) -> Evaluation:
    """Where its time goes, for a kernel that may become a parent."""
    worth = (found.speedup_low or 0.0) >= _WORTH_PROFILING * bench.best_speedup
    if not bench.court.settings.profile or not worth or found.time_ms is None:
        return found
    with phases("profile"), remote.on_device():
        try:
            told = remote.profile(bench.prepared.trial(0).inputs)
        except Rejection:  # its numbers stand; only the feedback is shorter
            return found
    profile = read_profile(
        told,
        time_ms=found.time_ms,
        card=bench.card,
        precision_class=found.precision_class,
        roofline=roofline_of(bench.device, disk_cache=bench.court.disk_cache),
    )
    return replace(found, profile=completed(profile, resources_of(remote.worker.built)))


def _check_format(source: str) -> None:
    """Refuse what cannot be a candidate before a process is spent on it."""
    try:
        parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:200]
        raise Rejection(
            Verdict.REFUSED, f"not Python: line {error.lineno}: {error.msg}{f': `{line}`' if line else ''}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Rejection(Verdict.REFUSED, f"not Python: {str(error) or type(error).__name__}") from None
