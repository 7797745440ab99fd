"""Times kernels in paired rounds: one block of calls each, in random order, each kernel in its own process.

Every timed call is a checked call (`correctness.examiner`). Its inputs are drawn for it alone and reach the kernel's
process just before it. While one kernel is timed the processes of the others are stopped.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.output_check import Examiner, Impression, Question
from kbevolve.evaluators.candidate.remote import Call, RemoteKernel
from kbevolve.evaluators.correctness.prepared import Trial
from kbevolve.evaluators.rejection import Rejection

#: Rounds that every kernel gets: fewer give no interval.
LEAST_ROUNDS = 3
#: Share of the timing budget that untimed calls may take.
_WARMUP_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
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
        """Untimed calls before a later block: one brings back the kernel's share of the caches, if there is time."""
        return min(self.warmup, int(self.calls > 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The timed calls of one kernel in one round."""

    calls: tuple[Call, ...]
    #: Milliseconds that a round trip took, of processor time that the kernel's processes took in it, and that their
    #: threads waited for a processor (both 0 on CUDA); means over the block, its untimed calls with it.
    trip_ms: float
    processor_ms: float
    waited_ms: float = 0.0
    #: What the judge makes of the told times on a busy machine: a share of each, and milliseconds added to it
    #: (`timing.clock`).
    share: float = 1.0
    penalty_ms: float = 0.0

    @property
    def times_ms(self) -> tuple[float, ...]:
        """As the worker told, and as the judge believes it."""
        return tuple(self.share * call.ms + self.penalty_ms for call in self.calls)


def plan_for(call_ms: float, settings: EvaluationSettings, *, most_calls: int) -> Plan:
    """What fits into `timing_seconds` at this many milliseconds a call, and `most_calls` inputs into memory."""
    affordable = 1e3 * settings.timing_seconds / call_ms
    warmup = min(settings.warmup, int(_WARMUP_SHARE * affordable))
    least = min(settings.least_rounds, settings.rounds)
    calls = min(settings.calls_per_round, most_calls, int(affordable / least))
    if calls:
        rounds = max(least, min(settings.rounds, int(affordable / calls)))
        return Plan(least_rounds=least, rounds=rounds, calls=calls, warmup=warmup)
    rounds = min(least, max(LEAST_ROUNDS, int(affordable)))
    return Plan(least_rounds=rounds, rounds=rounds, calls=1, warmup=warmup)


def time_round(
    kernels: Mapping[str, RemoteKernel],
    plans: Mapping[str, Plan],
    examiner: Examiner,
    warm: Trial,
    number: int,
    rng: Random,
    *,
    reference: str,
) -> dict[str, Block]:
    """One round: a block of each kernel on the same inputs, which no process has seen before.

    Args:
        kernels: by name.
        plans: how much is timed of each.
        examiner: draws the inputs and compares the outputs.
        warm: its inputs are used for untimed calls.
        number: of the round, from 0.
        rng: decides who goes first.
        reference: name of the one that the others are compared with; it gets a call for each question.

    Raises:
        Rejection: a kernel failed in a timed call; `culprit` is its name.
    """
    questions = [examiner.question() for _ in range(max(plan.calls for plan in plans.values()))]
    blocks = {}
    impressions = {}
    for name in rng.sample(sorted(kernels), len(kernels)):
        plan = plans[name]
        asked = questions if name == reference else questions[: plan.calls]
        warmup = plan.warmup if number == 0 else plan.block_warmup
        try:
            with _alone(name, kernels):
                blocks[name], impressions[name] = time_block(kernels[name], examiner, asked, warm=warm, warmup=warmup)
        except Rejection as failure:
            raise Rejection(failure.verdict, failure.message, culprit=name) from None
    for name in impressions.keys() - {reference}:
        answers = zip(questions, blocks[name].calls, impressions[name], impressions[reference], strict=False)
        for question, call, given, right in answers:
            try:
                examiner.compare(question, call, given, right)
            except Rejection as failure:
                raise Rejection(failure.verdict, failure.message, culprit=name) from None
    return blocks


def time_block(
    kernel: RemoteKernel, examiner: Examiner, questions: Sequence[Question], *, warm: Trial, warmup: int
) -> tuple[Block, list[Impression]]:
    """One call for each question after untimed ones, and what is kept of each output."""
    before = kernel.processor_time
    trips = [kernel.timed_call(warm.inputs).wall_ms for _ in range(warmup)]
    calls, impressions = [], []
    for question in questions:
        call = kernel.timed_call(question.inputs)
        trips.append(call.wall_ms)
        # The judge's clock runs until the output has been read: who replies before the work is done gains nothing.
        impressions.append(examiner.impression(kernel.outputs))
        calls.append(replace(call, wall_ms=1e3 * (time.perf_counter() - call.asked)))
    after = kernel.processor_time
    block = Block(
        calls=tuple(calls),
        trip_ms=statistics.fmean(trips),
        processor_ms=1e3 * (after.spent - before.spent) / len(trips),
        waited_ms=1e3 * (after.waited - before.waited) / len(trips),
    )
    return block, impressions


@contextmanager
def _alone(name: str, kernels: Mapping[str, RemoteKernel]) -> Iterator[None]:
    """Stop the processes of all other kernels: none can disturb what is timed now."""
    others = [kernel.worker for other, kernel in kernels.items() if other != name]
    for worker in others:
        worker.pause()
    try:
        yield
    finally:
        for worker in others:
            worker.resume()
