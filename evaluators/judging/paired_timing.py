"""Paired rounds with the device to themselves, and the checks of their times as a whole."""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from random import SystemRandom

from kbevolve.archive.records import Measurement, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import (
    ClocksDisagree,
    Undisturbed,
    check_clocks,
    claimed_ms,
    is_overloaded,
    least_ms,
    penalty_ms,
    undisturbed_share,
)
from kbevolve.evaluators.timing.rounds import TimedBlock, TimingPlan, beside, plan_for, time_round
from kbevolve.evaluators.timing.statistics import enough, round_log_ratio, rounds_ms

#: Names of the reference, and of the only kernel of an evaluation, among kernels that are timed together.
REFERENCE = "reference"
KERNEL = "kernel"
#: A kernel that took this many times the time of the reference, or of the best kernel here, in each of the first rounds
#: is not timed any longer: no decision needs its number.
CLEARLY_SLOW = 2.0
#: Rounds after which `CLEARLY_SLOW` is asked.
_FIRST_ROUNDS = 3
#: A kernel that differed from the reference by so much (a logarithm) in each round so far gets this interval and no
#: narrower one: whether it is faster is known, and a contest measures every champion again.
_APART = 0.05
_APART_INTERVAL = 0.005
#: A kernel that reached at most this share of the best one here in each round so far gets this interval and no narrower
#: one. It is no champion, and among parents one percent decides nothing. Most offspring are behind.
_BEHIND = 0.9
_BEHIND_INTERVAL = 0.01
#: A kernel whose calls took this many times the reference's in the trials is timed in short rounds at first, as is one
#: that looked behind there. So many calls has a short round: the fewest with one whose output is read again later.
_HOPELESS = 2 * CLEARLY_SLOW
_SHORT_CALLS = 2
#: Rounds may take this many times `timing_seconds`. Where inputs take long to draw and outputs to compare, a narrower
#: interval is not worth the wait.
ROUNDS_OVER_CALLS = 3.0
#: On a GPU, a kernel disturbed the reference if it took this many times as long beside the kernel as alone. On a CPU
#: other programs have the same effect; there the defence is that the kernel's processes are stopped.
_DISTURBED = 1.25
#: Seconds to wait before kernels whose clocks disagreed are timed again. A busy machine is often quiet again soon;
#: clocks that still disagree after the last pause are the kernel's fault.
_PAUSES_SECONDS = (0.3, 1.0, 3.0)

Round = dict[str, TimedBlock]


def run_rounds(
    context: ProblemContext,
    kernels: Mapping[str, CandidateProcess],
    plans: Mapping[str, TimingPlan],
    *,
    is_enough: Callable[[Sequence[Round]], bool],
) -> list[Round]:
    """Paired rounds until `is_enough`, or until the plans are complete; arguments and errors as below."""
    rounds: list[Round] = []
    rng = SystemRandom()  # a kernel must not know the order
    most = min(plan.rounds for name, plan in plans.items() if name != REFERENCE)
    with context.judge.gate.exclusive() as waited:
        for kernel in kernels.values():
            kernel.worker.deadline += waited  # the wait is not the kernel's fault
        warm = context.prepared.first_inputs()  # drawn on the device if they were not kept
        for number in range(most):
            try:
                rounds.append(time_round(kernels, plans, context.checker, warm, number, rng, reference=REFERENCE))
            except Rejection as failure:
                if failure.culprit != REFERENCE:
                    raise
                raise EvaluatorError(f"the reference failed while it was timed: {failure.message}; try again") from None
            if is_enough(rounds):
                break
        if not context.prepared.kept.fit:  # the next kernel's trials need what torch caches there
            with suppress(Rejection):  # the next request raises it
                kernels[REFERENCE].release_memory()
    return rounds


def run_credible_rounds(
    context: ProblemContext,
    kernels: Mapping[str, CandidateProcess],
    plans: Mapping[str, TimingPlan],
    classes: Mapping[str, str | None],
    *,
    is_enough: Callable[[Sequence[Round]], bool],
) -> list[Round]:
    """Paired rounds whose times passed the judge's checks, with its corrections.

    Where the two clocks disagree, all rounds are timed again: a busy machine disturbs some of the attempts, but a
    kernel that hides time hides it in all of them. In the last attempt, the time for which the kernel's threads waited
    for a processor also counts as an explanation.

    Args:
        context: the problem.
        kernels: by name; the reference is `REFERENCE`.
        plans: of each.
        classes: the precision class of each kernel but the reference.
        is_enough: called after each round.

    Raises:
        Rejection: a kernel failed, or its times are not credible; `culprit` is its name.
        EvaluatorError: the reference failed.
    """
    for pause in (*_PAUSES_SECONDS, None):
        rounds = run_rounds(context, kernels, plans, is_enough=is_enough)
        try:
            for name, precision_class in classes.items():
                _check_times(context, rounds, name, precision_class, is_last=pause is None)
            break
        except ClocksDisagree:
            if pause is None:
                raise
            time.sleep(pause)
            for kernel in kernels.values():
                kernel.worker.deadline += pause
    context.undisturbed = context.undisturbed.or_less(Undisturbed.of(_calls(rounds, REFERENCE)))
    return _corrected(context, rounds, classes)


def time_beside_reference(
    context: ProblemContext, candidate: CandidateProcess, kernel_ms: float, precision_class: str | None
) -> list[Round]:
    """Paired rounds of kernel and reference, until the interval is narrow enough or the kernel is clearly slow."""
    settings, most_calls = context.judge.settings, context.prepared.most_calls
    plans: dict[str, TimingPlan] = {
        name: plan_for(call_ms, settings, most_calls=most_calls)
        for name, call_ms in ((REFERENCE, context.undisturbed.ms), (KERNEL, kernel_ms))
    }
    plans[KERNEL] = beside(plans[KERNEL], plans[REFERENCE])
    least = plans[KERNEL].least_rounds
    deadline = time.monotonic() + ROUNDS_OVER_CALLS * settings.timing_seconds

    def is_behind(ratios: Sequence[float]) -> bool:
        return _is_behind(ratios, context.best_speedup)

    def is_enough(rounds: Sequence[Round]) -> bool:
        ratios = log_ratios(rounds, KERNEL)
        if is_clearly_slow(ratios, context.best_speedup):
            return True
        behind = is_behind(ratios)
        apart = min(map(abs, ratios)) > _APART
        interval = max(settings.interval, _BEHIND_INTERVAL if behind else _APART_INTERVAL if apart else 0.0)
        sufficient = time.monotonic() > deadline or enough(ratios, interval)
        return sufficient and len(ratios) >= (min(least, _FIRST_ROUNDS) if behind else least)

    def run(plans: Mapping[str, TimingPlan]) -> list[Round]:
        kernels = {REFERENCE: context.reference, KERNEL: candidate}
        return run_credible_rounds(context, kernels, plans, {KERNEL: precision_class}, is_enough=is_enough)

    in_trials = context.undisturbed.ms / kernel_ms
    if in_trials < max(1 / _HOPELESS, _BEHIND * context.best_speedup):
        rounds = run({name: _short(plan) for name, plan in plans.items()})
        ratios = log_ratios(rounds, KERNEL)
        if is_enough(rounds) and (is_clearly_slow(ratios, context.best_speedup) or is_behind(ratios)):
            return rounds
    return run(plans)


def _short(plan: TimingPlan) -> TimingPlan:
    """The least rounds, with few calls. Where inputs and outputs are large, a call costs the judge most of its time."""
    return replace(plan, calls=min(_SHORT_CALLS, plan.calls), rounds=plan.least_rounds)


def is_clearly_slow(ratios: Sequence[float], best: float) -> bool:
    """Whether a kernel was `CLEARLY_SLOW` in each of the first rounds; `best` is the best speedup so far."""
    return len(ratios) == _FIRST_ROUNDS and max(ratios) < math.log(max(best, 1.0) / CLEARLY_SLOW)


def _is_behind(ratios: Sequence[float], best: float) -> bool:
    return best > 0 and max(ratios) < math.log(_BEHIND * best)


def disturbs(context: ProblemContext, rounds: Sequence[Round]) -> bool:
    """Whether the reference was slower beside the kernel than alone, although the kernel's processes were stopped.

    A stopped process can still have work in a GPU's queue. Call this when the kernel's worker is dead.
    """
    if context.device.type != "cuda":
        return False
    beside = time_ms(rounds, REFERENCE)
    return beside > _DISTURBED * context.undisturbed.ms and beside > _DISTURBED * context.measure_reference()


def log_ratios(rounds: Sequence[Round], name: str) -> list[float]:
    """log(t_reference / t_kernel) of each round."""
    return [round_log_ratio(blocks[REFERENCE].times_ms, blocks[name].times_ms) for blocks in rounds]


def time_ms(rounds: Sequence[Round], name: str) -> float:
    """Milliseconds of a call."""
    return rounds_ms(blocks[name].times_ms for blocks in rounds)


def measurements(rounds: Sequence[Round]) -> Iterator[Measurement]:
    """Every block for the archive."""
    for number, blocks in enumerate(rounds):
        for name, role in ((REFERENCE, "reference"), (KERNEL, "child")):
            yield Measurement(role=role, round=number, times_ms=blocks[name].times_ms)


def _calls(rounds: Sequence[Round], name: str) -> list[Call]:
    return [call for blocks in rounds for call in blocks[name].calls]


def _check_times(
    context: ProblemContext, rounds: Sequence[Round], name: str, precision_class: str | None, *, is_last: bool
) -> None:
    """Reject times that contradict the judge's clock, or that are too short for work of this size."""
    # Of two threads on one processor one may spin until the other was scheduled: 20 ms a call were seen, in all calls
    # of all attempts, in the kernel's process and not in the reference's.
    waited_ms = statistics.median(blocks[name].waited_ms for blocks in rounds) if is_last else 0.0
    try:
        check_clocks(_calls(rounds, name), _calls(rounds, REFERENCE), context.device.type, waited_ms=waited_ms)
    except ClocksDisagree as failure:
        raise ClocksDisagree(failure.verdict, failure.message, culprit=name) from None
    if context.is_impossible(time_ms(rounds, name), precision_class):
        raise Rejection(
            Verdict.REFUSED,
            "not accepted: faster than this device can do the work that the problem asks for",
            culprit=name,
        )


def _corrected(context: ProblemContext, rounds: Sequence[Round], names: Iterable[str]) -> list[Round]:
    """The rounds with the judge's corrections: on a busy machine it does not believe all of the reported times."""
    reference, device_type = _calls(rounds, REFERENCE), context.device.type
    penalties = {
        name: penalty_ms(
            [blocks[name].calls for blocks in rounds], reference, device_type, undisturbed=context.undisturbed
        )
        for name in names
    }
    share = 1.0
    if device_type == "cpu":
        share = undisturbed_share(time_ms(rounds, REFERENCE), context.undisturbed)
        penalties = {name: max(penalty, _unspent_ms(rounds, name, share)) for name, penalty in penalties.items()}
    return [
        {
            name: replace(block, share=share) if name == REFERENCE else replace(block, penalty_ms=penalties[name])
            for name, block in blocks.items()
        }
        for blocks in rounds
    ]


def _unspent_ms(rounds: Sequence[Round], name: str, share: float) -> float:
    """Milliseconds by which a kernel claims less than its processor time shows, on an overloaded machine; else 0."""
    reference, kernel = ([blocks[one] for blocks in rounds] for one in (REFERENCE, name))
    spent_by_reference = statistics.median(block.processor_ms for block in reference)
    if not is_overloaded(statistics.median(block.trip_ms for block in reference), spent_by_reference):
        return 0.0
    spent = statistics.median(block.processor_ms for block in kernel)
    least = least_ms(spent, spent_by_reference, share * time_ms(rounds, REFERENCE))
    return max(0.0, least - claimed_ms([block.calls for block in kernel]))
