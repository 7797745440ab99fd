"""Contests: several kernels and the reference, each in a fresh process, timed in the same rounds."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.judging.paired_timing import REFERENCE, Round, run_credible_rounds
from kbevolve.evaluators.judging.pipeline import check_contestant, rejected
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import repeat_while
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.rounds import TimingPlan, plan_for


def run_contest(context: ProblemContext, kernels: Sequence[Kernel], *, rounds: int, tie: float) -> Contest:
    """Check the kernels, then time those that are right in so many paired rounds; `tie` is recorded.

    Raises:
        EvaluatorError: the reference fails, or no worker can be started.
    """
    field, timed = repeat_while(
        lambda run: any(block.penalty_ms for blocks in run[1] for block in blocks.values()),
        lambda: _run_once(context, kernels, rounds),
    )
    return Contest(
        reference=_times(timed, REFERENCE),
        times={name: _times(timed, name) for name in field.candidates if name != REFERENCE},
        failed={name: found for name, found in field.found.items() if found.verdict < Verdict.CORRECT},
        tie=tie,
    )


def _run_once(context: ProblemContext, kernels: Sequence[Kernel], rounds: int) -> tuple["_Field", list[Round]]:
    with ExitStack() as stack:
        # The reference gets a fresh process, too: identical code differs between two processes.
        reference, undisturbed = context.start_reference()
        stack.callback(reference.close)
        field = _Field(context, rounds)
        field.enter(REFERENCE, reference, undisturbed.ms)
        for kernel in kernels:
            candidate = context.start(kernel.source)
            stack.callback(candidate.close)
            field.found[kernel.id], kernel_ms = check_contestant(context, candidate, kernel)
            if field.found[kernel.id].verdict is Verdict.CORRECT:
                field.enter(kernel.id, candidate, kernel_ms)
        return field, field.run()


class _Field:
    """The kernels that are still in a contest."""

    def __init__(self, context: ProblemContext, rounds: int) -> None:
        self._context = context
        self._rounds = rounds
        self._plans: dict[str, TimingPlan] = {}
        self.candidates: dict[str, CandidateProcess] = {}
        #: Kernel id -> its evaluation in this contest.
        self.found: dict[str, Evaluation] = {}

    def enter(self, name: str, candidate: CandidateProcess, call_ms: float) -> None:
        plan = plan_for(call_ms, self._context.judge.settings, most_calls=self._context.prepared.most_calls)
        self._plans[name] = replace(plan, least_rounds=self._rounds, rounds=self._rounds, calls=max(1, plan.calls))
        self.candidates[name] = candidate

    def run(self) -> list[Round]:
        """All rounds. A kernel that fails in one leaves, and the others start again."""
        while len(self.candidates) > 1:
            classes = {name: self.found[name].accuracy.precision_class for name in self.candidates if name != REFERENCE}
            try:
                return run_credible_rounds(
                    self._context, self.candidates, self._plans, classes, is_enough=lambda _: False
                )
            except Rejection as failure:
                name = failure.culprit
                self.found[name] = rejected(self.found[name], failure)
                self.candidates.pop(name).close()
                del self._plans[name]
        return []


def _times(rounds: Sequence[Round], name: str) -> tuple[tuple[float, ...], ...]:
    return tuple(blocks[name].times_ms for blocks in rounds)
