"""Times kernels in paired rounds: one block of calls each, in random order, each kernel in its own process.

Every timed call is a checked call (`candidate.output_check`). Its inputs are drawn for it alone and reach the kernel's
process just before it. While one kernel is timed, the processes of the others are stopped.
"""

import secrets
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

import torch

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.candidate.output_check import OutputChecker, OutputSketch, TimedInputs
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.rejection import Rejection

#: Rounds that every kernel gets: fewer give no interval.
LEAST_ROUNDS = 3
#: Share of the timing budget that untimed calls may take.
_WARMUP_SHARE = 0.25
#: Fewest calls of a block, if that many are affordable in each of the fewest rounds. Of long calls a block has no more
#: than let all rounds fit into the budget: a kernel that needs few rounds then needs little time.
_FEWEST_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """How much is timed of one kernel."""

    #: At least and at most.
    least_rounds: int
    rounds: int
    #: Timed calls of a block.
    calls: int
    #: Untimed calls before the first block.
    warmup: int

    @property
    def block_warmup(self) -> int:
        """Untimed calls before a later block, if there is time: one call fills the caches again."""
        return min(self.warmup, int(self.calls > 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBlock:
    """The timed calls of one kernel in one round."""

    calls: tuple[Call, ...]
    #: Means over the calls of the block, the untimed ones included, in milliseconds: a round trip, the processor time
    #: of the kernel's processes in it, and what their threads waited for a processor (both 0 on CUDA).
    trip_ms: float
    processor_ms: float
    waited_ms: float = 0.0
    #: What the judge corrects on a busy machine (`timing.clock`): a factor of each time, and milliseconds added to it.
    share: float = 1.0
    penalty_ms: float = 0.0

    @property
    def times_ms(self) -> tuple[float, ...]:
        """The times that the worker reported, with the judge's corrections."""
        return tuple(self.share * call.ms + self.penalty_ms for call in self.calls)


def plan_for(call_ms: float, settings: EvaluationSettings, *, most_calls: int) -> TimingPlan:
    """What fits into `timing_seconds` at this many milliseconds a call, and `most_calls` inputs into memory."""
    affordable = 1e3 * settings.timing_seconds / call_ms
    warmup = min(settings.warmup, int(_WARMUP_SHARE * affordable))
    least = min(settings.least_rounds, settings.rounds)
    in_all_rounds = max(_FEWEST_CALLS, int(affordable / settings.rounds))
    calls = min(settings.calls_per_round, most_calls, in_all_rounds, int(affordable / least))
    if calls:
        rounds = max(least, min(settings.rounds, int(affordable / calls)))
        return TimingPlan(least_rounds=least, rounds=rounds, calls=calls, warmup=warmup)
    rounds = min(least, max(LEAST_ROUNDS, int(affordable)))
    return TimingPlan(least_rounds=rounds, rounds=rounds, calls=1, warmup=warmup)


def beside(plan: TimingPlan, reference: TimingPlan) -> TimingPlan:
    """The plan of a kernel that is timed beside the reference, which is called on all inputs of a round."""
    return replace(plan, calls=min(plan.calls, reference.calls))


def time_round(
    kernels: Mapping[str, CandidateProcess],
    plans: Mapping[str, TimingPlan],
    checker: OutputChecker,
    warm: list[torch.Tensor],
    number: int,
    rng: Random,
    *,
    reference: str,
) -> dict[str, TimedBlock]:
    """One round: a block of each kernel on the same inputs, which no process has seen before.

    The untimed calls are on the inputs `warm`. `reference` names the kernel that the others are compared with; it is
    called on all inputs of the round. Rounds are numbered from 0.

    Raises:
        Rejection: a kernel failed in a timed call; `culprit` is its name.
    """
    drawn = [checker.draw() for _ in range(max(plan.calls for plan in plans.values()))]
    blocks: dict[str, TimedBlock] = {}
    sketches: dict[str, list[OutputSketch]] = {}
    for name in rng.sample(sorted(kernels), len(kernels)):
        plan = plans[name]
        inputs = drawn if name == reference else drawn[: plan.calls]
        warmup = plan.block_warmup if number else plan.warmup
        with _blamed_on(name), _others_stopped(name, kernels):
            keep = name != reference and not number and not kernels[name].is_baseline
            blocks[name], sketches[name] = time_block(
                kernels[name], checker, inputs, warm=warm, warmup=warmup, keep=keep
            )
    for name in sketches.keys() - {reference}:
        with _blamed_on(name):
            for checked in zip(drawn, blocks[name].calls, sketches[name], sketches[reference], strict=False):
                checker.check(*checked)
    return blocks


def time_block(
    kernel: CandidateProcess,
    checker: OutputChecker,
    drawn: Sequence[TimedInputs],
    *,
    warm: list[torch.Tensor],
    warmup: int,
    keep: bool = False,
) -> tuple[TimedBlock, list[OutputSketch]]:
    """Untimed calls, then one timed call on each of these inputs; also a sketch of each output.

    With `keep`, the process keeps what one call returned, and it is read again after the last.
    """
    kept = secrets.randbelow(len(drawn) // 2) if keep and len(drawn) > 1 else -1
    before = kernel.processor_time
    trips = [kernel.timed_call(warm).wall_ms for _ in range(warmup)]
    calls, sketches = [], []
    for number, inputs in enumerate(drawn):
        weights = checker.weights(inputs)
        if weights is not None:
            kernel.overwrite_weights(weights)
        call = kernel.timed_call(checker.tensors(inputs), keep=number == kept)
        trips.append(call.wall_ms)
        # The judge's clock runs until the output has been read, so an early reply gains nothing.
        sketches.append(checker.sketch(kernel.outputs))
        calls.append(replace(call, wall_ms=1e3 * (time.perf_counter() - call.asked)))
    after = kernel.processor_time
    if kept >= 0:
        kernel.read_again()
        checker.check_kept(kernel.outputs, sketches[kept])
    block = TimedBlock(
        calls=tuple(calls),
        trip_ms=statistics.fmean(trips),
        processor_ms=1e3 * (after.spent - before.spent) / len(trips),
        waited_ms=1e3 * (after.waited - before.waited) / len(trips),
    )
    return block, sketches


@contextmanager
def _blamed_on(name: str) -> Iterator[None]:
    """Name the kernel that is rejected within."""
    try:
        yield
    except Rejection as failure:
        raise Rejection(failure.verdict, failure.message, culprit=name) from None


@contextmanager
def _others_stopped(name: str, kernels: Mapping[str, CandidateProcess]) -> Iterator[None]:
    """Stop the processes of all other kernels, so that none disturbs what is timed."""
    others = [kernel.worker for other, kernel in kernels.items() if other != name]
    for worker in others:
        worker.pause()
    try:
        yield
    finally:
        for worker in others:
            worker.resume()
