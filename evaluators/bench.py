"""A problem set up on a device: its truth, its card, and the worker that runs its reference."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness.examiner import Examiner
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.intake.card import inspect
from kbevolve.evaluators.intake.roofline import roofline_of
from kbevolve.evaluators.isolation.arena import Arena
from kbevolve.evaluators.isolation.remote import RemoteKernel
from kbevolve.evaluators.isolation.workers import Worker, WorkerPool
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.shelf import Shelf

#: What makes the reference a candidate of its own, so that the same program times it.
_REFERENCE_AS_CANDIDATE = "\n\nModelNew = Model\n"
#: Share of the roofline's floor below which a time cannot be: the floor rests on a measured bandwidth, and a few
#: percent more than was measured are possible.
_FLOOR_SHARE = 0.9
#: Warm calls of the reference whose fastest says how many fit into the time there is.
_GAUGED_CALLS = 3


@dataclass(slots=True, kw_only=True)
class Seat:
    """A kernel in its worker, with memory that the two share with the judge."""

    remote: RemoteKernel
    worker: Worker
    arena: Arena

    def clear(self) -> None:
        """End the worker, give the memory back. May be called twice."""
        self.worker.kill()
        self.arena.close()


class Bench:
    """One problem on one device. Close it to end the reference's worker and give the memory back."""

    def __init__(
        self, problem: Problem, device: Device, settings: EvaluationSettings, pool: WorkerPool, shelf: Shelf
    ) -> None:
        """Run the reference, judge the problem, warm up the reference's worker.

        Raises:
            EvaluatorError: the reference fails, here or in a worker.
        """
        self.device = device
        self.settings = settings
        self._pool = pool
        self._shelf = shelf
        self.prepared = PreparedProblem(problem, device, settings)
        #: What is known about the problem; cached on disk.
        self.card: ProblemCard = inspect(problem, self.prepared.reference, device, settings.precision, shelf=shelf)
        self.examiner = Examiner(self.prepared)
        #: Lower end of the best speedup seen here so far: faster kernels are worth a closer look.
        self.best_speedup = 0.0
        #: Lent to the worker of each kernel in turn.
        self.arena = Arena(device, self.prepared.arena_bytes)
        try:
            self.reference, self.reference_ms = self.seat_reference()
        except BaseException:
            self.arena.close()
            raise
        # As it is timed here and now: the card may have been made on a busier day.
        self.card = replace(self.card, eager_ms=self.reference_ms)

    def seat(self, source: str, *, wrap: str = "eager") -> Seat:
        """A fresh worker and memory of its own for one kernel; nothing of it has been run."""
        worker = self._pool.take()
        try:
            arena = Arena(self.device, self.prepared.arena_bytes)
        except BaseException:
            worker.kill()
            raise
        remote = RemoteKernel(worker, arena, self.prepared, self.settings, source, wrap=wrap)
        return Seat(remote=remote, worker=worker, arena=arena)

    def seat_reference(self, *, wrap: str = "eager") -> tuple[Seat, float]:
        """The reference in a fresh worker, warm, and the milliseconds of a call of it.

        Raises:
            EvaluatorError: it fails there.
        """
        problem = self.prepared.problem
        seat = self.seat(self.prepared.reference.source + _REFERENCE_AS_CANDIDATE, wrap=wrap)
        try:
            seat.remote.load()
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
        # The rates on the shelf may have been measured beside somebody else's work.
        problem, reference = self.prepared.problem, self.prepared.reference
        roofline = roofline_of(self.device, shelf=self._shelf, fresh=True)
        found = inspect(
            problem, reference, self.device, self.settings.precision, roofline, shelf=self._shelf, fresh=True
        )
        self.card = replace(found, eager_ms=self.reference_ms)
        return self.is_beyond_roofline(time_ms, precision_class)

    def is_beyond_roofline(self, time_ms: float, precision_class: str | None) -> bool:
        """Whether a time is below the floor of a precision class that the card tells."""
        return time_ms < _FLOOR_SHARE * self.card.floor_ms.get(precision_class or "", 0.0)

    def gauge_reference(self) -> float:
        """Milliseconds of a call of the reference, now."""
        return self._gauge(self.reference)

    def _gauge(self, seat: Seat) -> float:
        inputs = self.prepared.trial(0).inputs
        return min(seat.remote.timed_call(inputs).ms for _ in range(_GAUGED_CALLS))

    def close(self) -> None:
        """May be called twice."""
        self.reference.clear()
        on_cuda = self.arena.memory.is_cuda
        self.arena.close()
        if on_cuda:
            torch.cuda.empty_cache()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Keep torch's thread pool in this process asleep: after any use its threads spin for 10 ms on the cores that the
    workers are timed on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
