"""Holds contests: several kernels and the reference, each in a fresh process, timed in the same rounds."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.evaluators.judging.context import Bench, Seat
from kbevolve.evaluators.judging.paired_timing import REFERENCE, Round, hold_believed
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.clock import until_sure
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.rounds import Plan, plan_for

#: Loads a kernel and tries it: what was found, and milliseconds of its fastest call.
Admission = Callable[[Bench, Seat, Kernel], tuple[Evaluation, float]]


def hold_contest(bench: Bench, kernels: Sequence[Kernel], *, rounds: int, admit: Admission, tie: float) -> Contest:
    """Admit the kernels, then time those that are right.

    Args:
        bench: the problem.
        kernels: who competes.
        rounds: how many are held.
        admit: decides who may.
        tie: goes into the contest as it is.

    Raises:
        EvaluatorError: the reference fails, or no worker can be started.
    """
    field, held = until_sure(
        lambda: _hold(bench, kernels, rounds=rounds, admit=admit),
        lambda found: any(block.penalty_ms for blocks in found[1] for block in blocks.values()),
    )
    return Contest(
        reference=_times(held, REFERENCE),
        times={name: _times(held, name) for name in field.seats if name != REFERENCE},
        failed={name: found for name, found in field.found.items() if found.verdict < Verdict.CORRECT},
        tie=tie,
    )


def _hold(bench: Bench, kernels: Sequence[Kernel], *, rounds: int, admit: Admission) -> tuple["_Field", list[Round]]:
    """One contest, in processes of its own."""
    with ExitStack() as stack:
        # The reference gets a fresh process like everybody else: what one process is lucky with, another is not.
        reference, alone = bench.seat_reference()
        stack.callback(reference.clear)
        field = _Field(bench, rounds)
        field.enter(REFERENCE, reference, alone.ms)
        for kernel in kernels:
            seat = bench.seat(kernel.source)
            stack.callback(seat.clear)
            found, kernel_ms = admit(bench, seat, kernel)
            field.found[kernel.id] = found
            if found.verdict is Verdict.CORRECT:
                field.enter(kernel.id, seat, kernel_ms)
        return field, field.compete()


class _Field:
    """Who is still in a contest."""

    def __init__(self, bench: Bench, rounds: int) -> None:
        self._bench = bench
        self._rounds = rounds
        self._plans: dict[str, Plan] = {}
        self.seats: dict[str, Seat] = {}
        #: Kernel id -> what the judge found about it this time.
        self.found: dict[str, Evaluation] = {}

    def enter(self, name: str, seat: Seat, call_ms: float) -> None:
        plan = plan_for(call_ms, self._bench.court.settings, most_calls=self._bench.prepared.most_calls)
        calls = max(1, plan.calls)
        self._plans[name] = replace(plan, least_rounds=self._rounds, rounds=self._rounds, calls=calls)
        self.seats[name] = seat

    def compete(self) -> list[Round]:
        """All rounds. Who fails in one leaves, and the others start again."""
        while len(self.seats) > 1:
            try:
                return hold_believed(
                    self._bench,
                    {name: seat.remote for name, seat in self.seats.items()},
                    self._plans,
                    {name: self.found[name].precision_class for name in self.seats if name != REFERENCE},
                    is_enough=lambda held: False,
                )
            except Rejection as failure:
                name = failure.culprit
                self.found[name] = replace(self.found[name], verdict=failure.verdict, message=failure.message)
                self.seats.pop(name).clear()
                del self._plans[name]
        return []


def _times(held: Sequence[Round], name: str) -> tuple[tuple[float, ...], ...]:
    return tuple(blocks[name].times_ms for blocks in held)
