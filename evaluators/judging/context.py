"""A problem set up on a device: its truth, its card, and the worker that runs its reference."""

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.card import inspect
from kbevolve.evaluators.analysis.roofline import roofline_of
from kbevolve.evaluators.candidate.output_check import Examiner
from kbevolve.evaluators.candidate.remote import Call, RemoteKernel
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.device.memory import free_bytes
from kbevolve.evaluators.judging.binary_dedup import Twins
from kbevolve.evaluators.judging.court import Court
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.worker_pool import Worker
from kbevolve.evaluators.timing.clock import Alone
from kbevolve.evaluators.timing.rounds import time_block

#: What makes the reference a candidate of its own, so that the same program times it.
_REFERENCE_AS_CANDIDATE = "\n\nModelNew = Model\n"
#: Share of the roofline's floor below which a time cannot be: the floor rests on a measured bandwidth, and a few
#: percent more than was measured are possible.
_FLOOR_SHARE = 0.9
#: Calls of the reference at most, and seconds, until it is sure what it takes alone. On a quiet machine a few do.
_GAUGED_CALLS = 100
_GAUGE_SECONDS = 2.0
#: Share of the free memory that kernels which are tried side by side may take, by an estimate: each has its inputs and
#: outputs three times over (what it shares with the judge, its own, and as much again for what it makes on its way),
#: and what a process takes before it does anything.
_SEATED_SHARE = 0.7
_TIMES_OVER = 3
_PROCESS_BYTES = 1 << 30


@dataclass(slots=True, kw_only=True)
class Seat:
    """A kernel in its worker."""

    remote: RemoteKernel
    worker: Worker
    #: Left when the worker is dead and its memory is free again.
    room: ExitStack = field(default_factory=ExitStack)

    def clear(self) -> None:
        """End the worker, give the memory back. May be called twice."""
        self.worker.kill()
        self.remote.take_back()
        self.room.close()


class Bench:
    """One problem on one device. Close it to end the reference's worker and give the memory back.

    Kernels may be tried in several threads, each in a `Seat` of its own; `room` says how many fit at once.
    """

    def __init__(self, problem: Problem, court: Court, *, width: int) -> None:
        """Run the reference, judge the problem, warm up the reference's worker.

        Args:
            problem: what is asked.
            court: the device, and everything else that outlives a problem.
            width: how many kernels shall be tried at once; less where memory is short.

        Raises:
            EvaluatorError: the reference fails, here or in a worker.
        """
        self.court = court
        self.device = court.device
        #: Whether the reference failed in it: the next kernel gets a bench of its own.
        self.broken = False
        with court.gate.exclusive():
            self.prepared = PreparedProblem(problem, court.device, court.settings)
            #: What is known about the problem; cached on disk.
            self.card: ProblemCard = self._inspect()
            self.examiner = Examiner(self.prepared)
        #: Kernels that compile to what was judged before.
        self.twins = Twins(court.shell_of)
        #: Lower end of the best speedup seen here so far: faster kernels are worth a closer look.
        self.best_speedup = 0.0
        #: Of the reference's worker, lowered by every series that shows it faster.
        self.alone: Alone
        self.reference, self.alone = self.seat_reference()
        # As it is timed here and now: the card may have been made on a busier day.
        self.card = replace(self.card, eager_ms=self.alone.ms)
        #: Kernels that fit into memory side by side; to be entered before memory is lent to one.
        self.room = threading.BoundedSemaphore(self._fitting(width))

    def _inspect(self, *, fresh: bool = False) -> ProblemCard:
        court = self.court
        roofline = roofline_of(court.device, disk_cache=court.disk_cache, fresh=True) if fresh else None
        problem, reference = self.prepared.problem, self.prepared.reference
        return inspect(
            problem,
            reference,
            court.device,
            court.settings.precision,
            roofline,
            disk_cache=court.disk_cache,
            fresh=fresh,
        )

    def _fitting(self, width: int) -> int:
        free = _SEATED_SHARE * free_bytes(self.device) - width * _PROCESS_BYTES
        return max(1, min(width, int(free / (_TIMES_OVER * self.prepared.shared_bytes))))

    def seat(self, source: str, *, wrap: str = "eager", one_stream: bool = False) -> Seat:
        """A fresh worker for one kernel, of which nothing has been run; `one_stream`: all it does is on one."""
        worker = self.court.pool.take(one_stream=one_stream)
        worker.builder = self.court.builds.builder
        if self.device.type == "cuda":
            # On a CPU compilers run on the cores that kernels are timed on: there they keep their place at the gate.
            worker.while_compiling = self.court.gate.released
        remote = RemoteKernel(
            worker, self.device, self.prepared, self.court.settings, source, gate=self.court.gate, wrap=wrap
        )
        return Seat(remote=remote, worker=worker)

    def seat_reference(self, *, wrap: str = "eager") -> tuple[Seat, Alone]:
        """The reference in a fresh worker, warm, and what a call of it takes.

        Raises:
            EvaluatorError: it fails there.
        """
        problem = self.prepared.problem
        seat = self.seat(self.prepared.reference.source + _REFERENCE_AS_CANDIDATE, wrap=wrap)
        try:
            with seat.remote.on_device():
                seat.remote.load()
                seat.remote.lend()
                seat.remote.construct(self.prepared.weights)
                seat.remote.timed_call(self.prepared.trial(0).inputs)
            return seat, self._gauge(seat)
        except BaseException as failure:  # Ctrl-C as well
            seat.clear()
            if not isinstance(failure, Rejection):
                raise
            raise EvaluatorError(
                f"{problem.name}: the reference fails in a worker process: {' '.join(failure.message.split())}; "
                "it must be one self-contained file"
            ) from None

    def is_impossible(self, time_ms: float, precision_class: str | None) -> bool:
        """Whether a call cannot have done the problem's work in this time, at the rates that the device has.

        Never on a CPU, whose rates change with what its neighbours do.
        """
        if self.device.type == "cpu" or not self.is_beyond_roofline(time_ms, precision_class):
            return False
        # The rates in the disk cache may have been measured beside somebody else's work.
        with self.court.gate.exclusive():
            self.card = replace(self._inspect(fresh=True), eager_ms=self.alone.ms)
        return self.is_beyond_roofline(time_ms, precision_class)

    def is_beyond_roofline(self, time_ms: float, precision_class: str | None) -> bool:
        """Whether a time is below the floor of a precision class that the card tells."""
        return time_ms < _FLOOR_SHARE * self.card.floor_ms.get(precision_class or "", 0.0)

    def gauge_reference(self) -> float:
        """Milliseconds of a call of the reference, now.

        Raises:
            EvaluatorError: it fails.
        """
        try:
            return self._gauge(self.reference).ms
        except Rejection as failure:  # of no kernel
            raise EvaluatorError(f"the reference failed when timed again: {failure.message}; try again") from None

    def _gauge(self, seat: Seat) -> Alone:
        with self.court.gate.exclusive():
            started, warm = time.monotonic(), self.prepared.trial(0)
            calls: list[Call] = []
            while len(calls) < _GAUGED_CALLS and time.monotonic() - started < _GAUGE_SECONDS:
                block, _ = time_block(seat.remote, self.examiner, [self.examiner.question()], warm=warm, warmup=0)
                calls += block.calls
                if Alone.of(calls).is_sure(calls):
                    break
            return Alone.of(calls)

    def close(self) -> None:
        """May be called twice."""
        self.reference.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
