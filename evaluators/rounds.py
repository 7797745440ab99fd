"""Times a kernel against the reference: blocks of calls in paired rounds, in random order, each in its own process."""

import math
import statistics
from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Measurement, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.mismatch import describe_mismatch
from kbevolve.evaluators.prepared import PreparedProblem, Trial
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.remote import RemoteKernel
from kbevolve.evaluators.statistics import round_log_ratio
from kbevolve.evaluators.truth import centred_errors

#: Rounds that every kernel gets: fewer give no interval.
LEAST_ROUNDS = 3
#: A kernel that took this many times the reference's time in each of the first rounds is not timed any longer.
CLEARLY_SLOW = 2.0
#: Share of the timing budget that untimed calls may take.
_WARMUP_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is timed."""

    rounds: int
    #: Timed calls of a block.
    calls: int
    #: Untimed calls before the first block.
    warmup: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was timed."""

    blocks: tuple[Measurement, ...]
    #: log(t_reference / t_kernel), one a round.
    log_ratios: tuple[float, ...]
    #: Whether fewer calls than asked for were timed.
    cut_short: bool

    def median_ms(self, role: str) -> float:
        """Median over the rounds of the blocks' medians."""
        return statistics.median(statistics.median(block.times_ms) for block in self.blocks if block.role == role)


def plan_for(call_ms: float, settings: EvaluationSettings) -> Plan:
    """What fits into `timing_seconds` at this many milliseconds a call."""
    affordable = 1e3 * settings.timing_seconds / call_ms
    calls = min(settings.calls_per_round, int(affordable / settings.rounds))
    warmup = min(settings.warmup, int(_WARMUP_SHARE * affordable))
    if calls:
        return Plan(rounds=settings.rounds, calls=calls, warmup=warmup)
    return Plan(rounds=min(settings.rounds, max(LEAST_ROUNDS, int(affordable))), calls=1, warmup=warmup)


def time_in_rounds(
    kernel: RemoteKernel,
    reference: RemoteKernel,
    prepared: PreparedProblem,
    settings: EvaluationSettings,
    *,
    kernel_ms: float,
    reference_ms: float,
    rng: Random,
) -> Timing:
    """Time both in turn on the same inputs, which change from round to round.

    The output of the last call of every block of the kernel is compared with the truth, like a trial's.

    Args:
        kernel: the kernel, warm.
        reference: the reference, warm.
        prepared: inputs and truths.
        settings: how much to time.
        kernel_ms: estimated milliseconds of one call of the kernel.
        reference_ms: of the reference.
        rng: decides which of the two goes first in each round.

    Raises:
        Rejection: the kernel failed in a timed call.
        EvaluatorError: the reference did.
    """
    plan, reference_plan = plan_for(kernel_ms, settings), plan_for(reference_ms, settings)
    blocks: list[Measurement] = []
    ratios: list[float] = []
    for number in range(plan.rounds):
        trial = prepared.timed_trial(number)
        times: dict[str, list[float]] = {}
        for role in rng.sample(("reference", "kernel"), 2):
            if role == "kernel":
                times[role] = kernel.block(trial.inputs, warmup=_warmup(plan, number), calls=plan.calls)
                _check(kernel, trial)
            else:
                times[role] = _reference_block(reference, trial, reference_plan, number)
        ratios.append(round_log_ratio(times["reference"], times["kernel"]))
        blocks.append(Measurement(role="reference", round=number, times_ms=tuple(times["reference"])))
        blocks.append(Measurement(role="child", round=number, times_ms=tuple(times["kernel"])))
        if len(ratios) == LEAST_ROUNDS and max(ratios) < -math.log(CLEARLY_SLOW):
            break
    asked = settings.rounds * settings.calls_per_round
    return Timing(blocks=tuple(blocks), log_ratios=tuple(ratios), cut_short=len(ratios) * plan.calls < asked)


def _warmup(plan: Plan, number: int) -> int:
    # Later blocks follow the other process's: one call brings back its share of the caches, if there is time for one.
    return plan.warmup if number == 0 else min(plan.warmup, int(plan.calls > 1))


def _reference_block(reference: RemoteKernel, trial: Trial, plan: Plan, number: int) -> list[float]:
    try:
        return reference.block(trial.inputs, warmup=_warmup(plan, number), calls=plan.calls, collect=False)
    except Rejection as failure:
        raise EvaluatorError(f"the reference failed while it was timed: {failure.message}; try again") from None


def _check(kernel: RemoteKernel, trial: Trial) -> None:
    error = max(centred_errors(kernel.outputs, trial.answer, trial.scale.spread))
    if not error <= trial.scale.bound:
        words = describe_mismatch(kernel.outputs, trial.answer.truth, error, trial.scale.reference_error)
        raise Rejection(Verdict.WRONG, f"right when it was checked first, not when it was timed: {words}")
