"""Contests: several kernels and the reference, each in a fresh process, timed in the same rounds."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.device.devices import current
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.judging.paired_timing import (
    REFERENCE,
    ROUNDS_OVER_CALLS,
    Round,
    log_ratios,
    run_credible_rounds,
)
from kbevolve.evaluators.judging.pipeline import check_contestant, lacked_memory, rejected
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import repeat_while
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.rounds import TimingPlan, beside, plan_for
from kbevolve.evaluators.timing.statistics import enough

#: Fewest timed calls of each kernel, unless the time is over: what is published rests on them, and each is checked. A
#: kernel that is fast and wrong in a fifth of its calls, so in half of the blocks of three, passes so many once in 800.
_LEAST_CALLS = 30


def run_contest(context: ProblemContext, kernels: Sequence[Kernel], *, rounds: int, tie: float) -> Contest:
    """Check the kernels, then time those that are right in at most so many paired rounds; `tie` is recorded.

    As in an evaluation, narrow intervals and long rounds end it earlier.

    Raises:
        torch.OutOfMemoryError: so many kernels do not fit into memory side by side.
        EvaluatorError: the reference failed.
    """
    found, timed = repeat_while(
        lambda run: any(block.penalty_ms for blocks in run[1] for block in blocks.values()),
        lambda: _run_once(context, kernels, rounds),
    )
    return Contest(
        reference=_times(timed, REFERENCE),
        times={name: _times(timed, name) for name, one in found.items() if one.verdict is Verdict.CORRECT},
        failed={name: one for name, one in found.items() if one.verdict < Verdict.CORRECT},
        tie=tie,
    )


def _run_once(
    context: ProblemContext, kernels: Sequence[Kernel], rounds: int
) -> tuple[dict[str, Evaluation], list[Round]]:
    """Each kernel's evaluation in this contest, and all rounds. When a kernel fails in one, the others start again.

    The kernels are checked side by side while the reference starts, since most of that time they compile.
    """
    found: dict[str, Evaluation] = {}
    candidates: dict[str, CandidateProcess] = {}
    plans: dict[str, TimingPlan] = {}

    def enter(name: str, candidate: CandidateProcess, call_ms: float) -> None:
        plan = plan_for(call_ms, context.judge.settings, most_calls=context.prepared.most_calls)
        plan = beside(plan, plans.get(REFERENCE, plan))
        plans[name] = replace(plan, least_rounds=rounds, rounds=rounds, calls=max(1, plan.calls))
        candidates[name] = candidate

    def note(name: str, evaluation: Evaluation) -> None:
        if len(kernels) > 1 and lacked_memory(evaluation):  # the fault of the others
            raise torch.OutOfMemoryError(evaluation.message)
        found[name] = evaluation

    def checked(candidate: CandidateProcess, kernel: Kernel) -> tuple[Evaluation, float]:
        with current(context.device):
            return check_contestant(context.judge, context.prepared, candidate, kernel)

    with ExitStack() as stack:
        started: list[CandidateProcess] = []
        for kernel in kernels:
            started.append(context.start(kernel.source))
            stack.callback(started[-1].close)
        # When an error ends the contest, the processes are killed, so the threads end, and what they use is closed.
        threads = stack.enter_context(
            ThreadPoolExecutor(context.fitting, initializer=torch.set_num_threads, initargs=(1,))
        )
        for candidate in started:
            stack.callback(candidate.worker.end)
        checks = threads.map(checked, started, kernels)
        # The reference gets a fresh process, too: identical code differs between two processes.
        enter(REFERENCE, context.renew_reference(), context.undisturbed.ms)
        for kernel, candidate, (evaluation, kernel_ms) in zip(kernels, started, checks, strict=True):
            note(kernel.id, evaluation)
            if evaluation.verdict is Verdict.CORRECT:
                enter(kernel.id, candidate, kernel_ms)
        while len(candidates) > 1:
            classes = {name: found[name].accuracy.precision_class for name in candidates if name != REFERENCE}
            is_enough = _enough_for_all(context.judge.settings, [*classes])
            try:
                timed = run_credible_rounds(context, candidates, plans, classes, is_enough=is_enough)
            except Rejection as failure:
                name = failure.culprit
                note(name, rejected(found[name], failure))
                candidates.pop(name).close()
                del plans[name]
            else:
                return found, timed
    return found, []


def _enough_for_all(settings: EvaluationSettings, names: Sequence[str]) -> Callable[[Sequence[Round]], bool]:
    """Whether the rounds suffice for each of these kernels; the time that they may take begins now."""
    processes = len(names) + 1
    deadline = time.monotonic() + ROUNDS_OVER_CALLS * settings.timing_seconds * processes

    def is_enough(rounds: Sequence[Round]) -> bool:
        if len(rounds) < settings.least_rounds:
            return False
        checked = (sum(len(blocks[name].calls) for blocks in rounds) >= _LEAST_CALLS for name in names)
        narrow = (enough(log_ratios(rounds, name), settings.interval) for name in names)
        return time.monotonic() > deadline or (all(checked) and all(narrow))

    return is_enough


def _times(rounds: Sequence[Round], name: str) -> tuple[tuple[float, ...], ...]:
    return tuple(blocks[name].times_ms for blocks in rounds)
