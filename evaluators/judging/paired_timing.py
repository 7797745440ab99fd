"""A series of paired rounds: held with the device alone, ended when it says enough, and checked as a whole."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom

from kbevolve.archive.records import Measurement, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.candidate.remote import Call, RemoteKernel
from kbevolve.evaluators.judging.context import Bench
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import (
    Alone,
    ClocksDisagree,
    check_clocks,
    claimed_ms,
    is_overloaded,
    least_ms,
    penalty_ms,
    undisturbed_share,
)
from kbevolve.evaluators.timing.rounds import Block, Plan, time_round
from kbevolve.evaluators.timing.statistics import round_log_ratio, rounds_ms

#: The reference's name among kernels that are timed together.
REFERENCE = "reference"
#: A reference that took this many times as long beside a kernel as it takes alone was disturbed by it, on a GPU; on a
#: CPU, where neighbours do as much, stopping the kernel's processes is the defence.
_DISTURBED = 1.25
#: Seconds to wait before a series whose clocks disagreed is timed again: what disturbs one on a busy machine is often
#: over soon. Clocks that disagree after the last are the kernel's fault.
_PAUSES_SECONDS = (0.3, 1.0, 3.0)

Round = dict[str, Block]


def hold(
    bench: Bench,
    kernels: Mapping[str, RemoteKernel],
    plans: Mapping[str, Plan],
    *,
    is_enough: Callable[[Sequence[Round]], bool],
) -> list[Round]:
    """Paired rounds until `is_enough`, or until the plans are through.

    Args:
        bench: the problem.
        kernels: by name; the reference is `REFERENCE`.
        plans: of each.
        is_enough: asked after each round.

    Raises:
        Rejection: a kernel failed; `culprit` is its name.
        EvaluatorError: the reference did.
    """
    held: list[Round] = []
    rng = SystemRandom()  # a kernel must not know when its turn comes
    most = min(plan.rounds for name, plan in plans.items() if name != REFERENCE)
    with bench.court.gate.exclusive() as waited:
        for kernel in kernels.values():
            kernel.worker.deadline += waited  # others' fault, not the kernel's
        warm = bench.prepared.trial(0)  # what was not kept is computed again, on the device
        for number in range(most):
            try:
                held.append(time_round(kernels, plans, bench.examiner, warm, number, rng, reference=REFERENCE))
            except Rejection as failure:
                if failure.culprit != REFERENCE:
                    raise
                raise EvaluatorError(f"the reference failed while it was timed: {failure.message}; try again") from None
            if is_enough(held):
                break
    return held


def hold_believed(
    bench: Bench,
    kernels: Mapping[str, RemoteKernel],
    plans: Mapping[str, Plan],
    classes: Mapping[str, str | None],
    *,
    is_enough: Callable[[Sequence[Round]], bool],
) -> list[Round]:
    """Paired rounds whose times can be believed.

    Where the two clocks disagree everything is timed again: a neighbour on the machine disturbs one series, who hides
    time hides it in all of them. What a kernel's threads waited for a processor explains the last one, too.

    Args:
        bench: the problem.
        kernels: by name; the reference is `REFERENCE`.
        plans: of each.
        classes: the precision class of each but the reference.
        is_enough: asked after each round.

    Raises:
        Rejection: a kernel failed, or its times are not believed; `culprit` is its name.
        EvaluatorError: the reference failed.
    """
    for pause in (*_PAUSES_SECONDS, None):
        held = hold(bench, kernels, plans, is_enough=is_enough)
        try:
            for name, precision_class in classes.items():
                _check(bench, held, name, precision_class, is_last=pause is None)
            break
        except ClocksDisagree:
            if pause is None:
                raise
            time.sleep(pause)
            for kernel in kernels.values():
                kernel.worker.deadline += pause
    bench.alone = bench.alone.or_less(Alone.of(_calls(held, REFERENCE)))
    return _doubted(bench, held, classes)


def _doubted(bench: Bench, held: Sequence[Round], names: Iterable[str]) -> list[Round]:
    """The rounds with what the judge believes of their times: on a busy machine not all that was told."""
    reference, device_type = _calls(held, REFERENCE), bench.device.type
    doubts = {
        name: penalty_ms([blocks[name].calls for blocks in held], reference, device_type, alone=bench.alone)
        for name in names
    }
    share = 1.0
    if device_type == "cpu":
        share = undisturbed_share(time_ms(held, REFERENCE), bench.alone)
        doubts = {name: max(doubt, _unspent_ms(held, name, share)) for name, doubt in doubts.items()}
    return [
        {
            name: replace(block, share=share) if name == REFERENCE else replace(block, penalty_ms=doubts[name])
            for name, block in blocks.items()
        }
        for blocks in held
    ]


def _unspent_ms(held: Sequence[Round], name: str, share: float) -> float:
    """Milliseconds that a kernel claims to take less than its processor time says, on an overloaded machine; else 0."""
    reference, kernel = ([blocks[one] for blocks in held] for one in (REFERENCE, name))
    spent_by_reference = statistics.median(block.processor_ms for block in reference)
    if not is_overloaded(statistics.median(block.trip_ms for block in reference), spent_by_reference):
        return 0.0
    spent = statistics.median(block.processor_ms for block in kernel)
    least = least_ms(spent, spent_by_reference, share * time_ms(held, REFERENCE))
    return max(0.0, least - claimed_ms([block.calls for block in kernel]))


def _calls(held: Sequence[Round], name: str) -> list[Call]:
    return [call for blocks in held for call in blocks[name].calls]


def _check(bench: Bench, held: Sequence[Round], name: str, precision_class: str | None, *, is_last: bool) -> None:
    """Refuse times that the judge's clock contradicts, or that no work of this size can take."""
    # Of two threads on one processor one may spin until the other has had its turn: 20 ms a call were seen, call after
    # call and series after series, in the kernel's process and not in the reference's.
    waited_ms = statistics.median(blocks[name].waited_ms for blocks in held) if is_last else 0.0
    try:
        check_clocks(_calls(held, name), _calls(held, REFERENCE), bench.device.type, waited_ms=waited_ms)
    except ClocksDisagree as failure:
        raise ClocksDisagree(failure.verdict, failure.message, culprit=name) from None
    if bench.is_impossible(time_ms(held, name), precision_class):
        raise Rejection(
            Verdict.REFUSED,
            "not accepted: faster than this device can do the work that the problem asks for",
            culprit=name,
        )


def disturbs(bench: Bench, held: Sequence[Round]) -> bool:
    """Whether the reference was slower beside the kernel than alone, with the kernel's processes stopped.

    A stopped process can still have work in a GPU's queue. To be asked when the kernel's worker is dead.
    """
    if bench.device.type != "cuda":
        return False
    beside = time_ms(held, REFERENCE)
    if beside <= _DISTURBED * bench.alone.ms:
        return False
    alone = bench.gauge_reference()
    return beside > _DISTURBED * alone


def log_ratios(held: Sequence[Round], name: str) -> list[float]:
    """log(t_reference / t_kernel), one a round."""
    return [round_log_ratio(blocks[REFERENCE].times_ms, blocks[name].times_ms) for blocks in held]


def time_ms(held: Sequence[Round], name: str) -> float:
    """Milliseconds of a call."""
    return rounds_ms(blocks[name].times_ms for blocks in held)


def measurements(held: Sequence[Round], roles: Mapping[str, str]) -> Iterator[Measurement]:
    """Every block for the archive, under the roles that the names stand for."""
    for number, blocks in enumerate(held):
        for name, role in roles.items():
            yield Measurement(role=role, round=number, times_ms=blocks[name].times_ms)
