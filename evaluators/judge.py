"""The trusted side: the truth, the seeds, the tolerances and the verdict. It never imports a candidate."""

import ast
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random, SystemRandom
from types import TracebackType
from typing import Self

import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.arena import Arena
from kbevolve.evaluators.devices import Device, exclusive
from kbevolve.evaluators.mismatch import describe_mismatch
from kbevolve.evaluators.prepared import PreparedProblem
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.remote import RemoteKernel
from kbevolve.evaluators.rounds import CLEARLY_SLOW, time_in_rounds
from kbevolve.evaluators.statistics import speedup_of
from kbevolve.evaluators.truth import allclose, centred_errors, precision_class
from kbevolve.evaluators.workers import Worker, WorkerPool

#: What makes the reference a candidate of its own, so that the same program times it.
_REFERENCE_AS_CANDIDATE = "\n\nModelNew = Model\n"


class Judge:
    """Judges kernels on one device, one after another; implements `Evaluator`.

    Each kernel gets a worker process of its own, which is killed afterwards. What belongs to the problem (truth,
    inputs, a worker for the reference) is kept until another problem comes. Not for several threads at once.
    """

    def __init__(self, device: Device, settings: EvaluationSettings) -> None:
        self.device = device
        self.settings = settings
        #: Seconds of the last evaluation by phase, in order.
        self.phases: dict[str, float] = {}
        # Two at first: one for the reference, one for the first kernel.
        self._pool = WorkerPool(device, first=2)
        self._bench: _Bench | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and give the memory back. May be called twice."""
        self._leave_problem()
        self._pool.close()

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel.

        Raises:
            EvaluatorError: the reference fails, or no worker can be started.
        """
        started = time.perf_counter()
        self.phases = {}
        found = Evaluation(
            kernel=kernel.id,
            problem=problem.id,
            device=self.device.fingerprint,
            precision=self.settings.precision,
            verdict=Verdict.CORRECT,
        )
        try:
            _check_format(kernel.source)
            with self._phase("prepare"):
                bench = self._bench_for(problem)
            with _single_thread():
                found = self._judge(bench, kernel, found)
        except Rejection as failure:
            found = replace(found, verdict=failure.verdict, message=failure.message)
        return replace(found, build_seconds=self.phases.get("build", 0.0), seconds=time.perf_counter() - started)

    def _judge(self, bench: "_Bench", kernel: Kernel, found: Evaluation) -> Evaluation:
        with self._phase("worker"):
            worker = self._pool.take()
        worker.deadline = time.monotonic() + self.settings.total_seconds
        try:
            remote = RemoteKernel(worker, bench.arena, bench.prepared, self.settings, kernel.source)
            with self._phase("build"):
                remote.load()
            with self._phase("trials"):
                found, kernel_ms = self._try(remote, bench.prepared, found)
            if found.verdict < Verdict.CORRECT:
                return found
            waiting = time.monotonic()
            with self._phase("wait"):
                self._pool.settle()
            with exclusive(self.device), self._phase("timing"):
                worker.deadline += time.monotonic() - waiting  # others' fault, not the kernel's
                return self._time(remote, bench, found, kernel_ms)
        finally:
            with self._phase("end"):
                worker.kill()

    def _try(self, remote: RemoteKernel, prepared: PreparedProblem, found: Evaluation) -> tuple[Evaluation, float]:
        """The trials, up to the first that fails; also the milliseconds of the fastest call."""
        found = replace(found, error=0.0, reference_error=0.0, allclose=True, tags=prepared.tags)
        # The fastest: the first call compiles, and the next worker's start-up slows some of the others.
        call_ms = math.inf
        for number in range(prepared.trials):
            trial = prepared.trial(number)
            call_ms = min(call_ms, remote.run(trial.inputs))
            outputs = remote.outputs
            error = max(centred_errors(outputs, trial.answer, trial.scale.spread))
            # KernelBench knows no transformed inputs; its elementwise tolerance rejects honest kernels on them.
            close = allclose(outputs, trial.answer, prepared.precision) if trial.nominal else True
            worst = max(found.error or 0.0, error)
            found = replace(
                found,
                error=worst if math.isfinite(worst) else None,  # NaN and infinity are as wrong as can be, by no number
                precision_class=precision_class(worst),
                reference_error=max(found.reference_error or 0.0, trial.scale.reference_error),
                allclose=bool(found.allclose) and close,
            )
            if not error <= trial.scale.bound:
                words = describe_mismatch(outputs, trial.answer.truth, error, trial.scale.reference_error)
                return replace(found, verdict=Verdict.WRONG, message=words), call_ms
        return found, call_ms

    def _time(self, remote: RemoteKernel, bench: "_Bench", found: Evaluation, kernel_ms: float) -> Evaluation:
        try:
            timing = time_in_rounds(
                remote,
                bench.reference,
                bench.prepared,
                self.settings,
                kernel_ms=kernel_ms,
                reference_ms=bench.reference_ms,
                rng=SystemRandom(),  # a kernel must not know when its turn comes
            )
        except EvaluatorError:
            self._leave_problem()  # its reference worker may be dead
            raise
        # Seeded by the kernel: an interval computed again from the archived blocks comes out the same.
        speedup = speedup_of(timing.log_ratios, Random(found.kernel))
        slow = ("clearly-slow",) if timing.cut_short and speedup.estimate < 1 / CLEARLY_SLOW else ()
        return replace(
            found,
            time_ms=timing.median_ms("child"),
            reference_ms=timing.median_ms("reference"),
            speedup=speedup.estimate,
            speedup_low=speedup.low,
            speedup_high=speedup.high,
            tags=found.tags + slow,
            blocks=timing.blocks,
        )

    def _bench_for(self, problem: Problem) -> "_Bench":
        if self._bench is None or self._bench.prepared.problem.id != problem.id:
            self._leave_problem()
            self._bench = _Bench.set_up(problem, self.device, self.settings, self._pool)
        return self._bench

    def _leave_problem(self) -> None:
        if self._bench is not None:
            self._bench.close()
            self._bench = None

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = time.perf_counter() - start


@dataclass(slots=True, kw_only=True)
class _Bench:
    """A prepared problem with its memory and the worker that runs its reference."""

    prepared: PreparedProblem
    #: Lent to the worker of each kernel in turn.
    arena: Arena
    reference: RemoteKernel
    reference_worker: Worker
    reference_arena: Arena
    #: Milliseconds of one warm call of the reference.
    reference_ms: float

    @classmethod
    def set_up(cls, problem: Problem, device: Device, settings: EvaluationSettings, pool: WorkerPool) -> "_Bench":
        prepared = PreparedProblem(problem, device, settings)
        arena = Arena(device, prepared.arena_bytes)
        # The reference has memory of its own: what a candidate can write to, the reference does not read.
        reference_arena = Arena(device, max(prepared.input_bytes, prepared.loading_bytes))
        worker = pool.take()
        source = prepared.reference.source + _REFERENCE_AS_CANDIDATE
        reference = RemoteKernel(worker, reference_arena, prepared, settings, source)
        try:
            reference.load()
            inputs = prepared.trial(0).inputs
            reference.block(inputs, warmup=1, calls=1, collect=False)
            call_ms = min(reference.block(inputs, warmup=0, calls=3, collect=False))
        except BaseException as failure:  # Ctrl-C as well
            worker.kill()
            arena.close()
            reference_arena.close()
            if not isinstance(failure, Rejection):
                raise
            raise EvaluatorError(
                f"{problem.name}: the reference fails in a worker process: {' '.join(failure.message.split())}; "
                "it must be one self-contained file"
            ) from None
        return cls(
            prepared=prepared,
            arena=arena,
            reference=reference,
            reference_worker=worker,
            reference_arena=reference_arena,
            reference_ms=call_ms,
        )

    def close(self) -> None:
        self.reference_worker.kill()
        on_cuda = self.arena.memory.is_cuda
        self.arena.close()
        self.reference_arena.close()
        if on_cuda:
            torch.cuda.empty_cache()


@contextmanager
def _single_thread() -> Iterator[None]:
    """Keep torch's thread pool in this process asleep: after any use its threads spin for 10 ms on the cores that the
    workers are timed on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_format(source: str) -> None:
    """Refuse what cannot be a candidate before a process is spent on it."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:200]
        raise Rejection(
            Verdict.REFUSED, f"not Python: line {error.lineno}: {error.msg}{f': `{line}`' if line else ''}"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Rejection(Verdict.REFUSED, f"not Python: {str(error) or type(error).__name__}") from None
    if "ModelNew" not in source:
        raise Rejection(Verdict.REFUSED, "the file defines no ModelNew; it must define class ModelNew(torch.nn.Module)")
