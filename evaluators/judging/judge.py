"""The trusted side: the truth, the seeds, the tolerances and the verdict. It never imports a candidate."""

import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool, RemoteBuilder
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.admission import Docket
from kbevolve.evaluators.judging.binary_dedup import ShellOf
from kbevolve.evaluators.judging.context import Bench, Seat
from kbevolve.evaluators.judging.court import Court
from kbevolve.evaluators.judging.head_to_head import hold_contest
from kbevolve.evaluators.judging.paired_timing import log_ratios
from kbevolve.evaluators.judging.phases import Phases
from kbevolve.evaluators.judging.pipeline import (
    KERNEL,
    admit,
    blank,
    build,
    check_card,
    hear,
    is_doubtful,
    read,
    time_beside_reference,
)
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.process_table import WATCH_SECONDS, ProcessTable
from kbevolve.evaluators.sandbox.quiet_threads import QuietThreads
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from kbevolve.evaluators.timing.baselines import Baseline, missing, recall, remember
from kbevolve.evaluators.timing.clock import until_sure
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.repeatability import Repeatability
from kbevolve.evaluators.timing.statistics import speedup_of

#: What a kernel says that found no memory. Beside others that is no fault of its own.
_OUT_OF_MEMORY = "out of memory"
#: Kernels under way at once on a GPU at most: one is timed, some are tried, most compile. Each has a core for itself,
#: and the judge and its timing have two.
_WIDEST = 16
_TIMING_CORES = 2


def width_for(device: Device, asked: int = 0) -> int:
    """Kernels that may be under way at once: `asked`, or as many as this machine has cores for when that is 0.

    On a CPU all cores belong to the kernel that is timed.
    """
    if asked:
        return asked
    return 1 if device.type == "cpu" else max(1, min(_WIDEST, len(os.sched_getaffinity(0)) - _TIMING_CORES))


class Judge:
    """Judges kernels on one device; implements `Evaluator` and `Confirmer`.

    Each kernel gets a worker process of its own, which is killed afterwards. What belongs to the problem (truth,
    inputs, a worker for the reference) is kept until another problem comes.

    All methods may be called from several threads. Up to `width` kernels of one problem are built and tried side by
    side; one at a time is timed, with the device to itself; contests and baselines are held with nobody beside.
    """

    def __init__(
        self,
        device: Device,
        settings: EvaluationSettings,
        *,
        disk_cache: DiskCache | None = None,
        width: int = 1,
        builders: int = 0,
        plain: bool = False,
        build_elsewhere: RemoteBuilder | None = None,
        shell_of: ShellOf | None = None,
    ) -> None:
        """Start the first workers.

        Args:
            device: to judge on.
            settings: how.
            disk_cache: what is kept from one process to the next; None for the user's own.
            width: kernels that may be under way at once.
            builders: compilers at once; 0 for as many as the machine has cores for.
            plain: build as torch itself does, without lighter or precompiled headers: slowly.
            build_elsewhere: builds what the cache does not hold; None for this machine's compilers.
            shell_of: lets kernels of one machine code be judged once (`judging.binary_dedup`); None judges each itself.
        """
        self.device = device
        self.settings = settings
        #: Kernels that may be under way at once; more are waited for.
        self.width = width
        disk_cache, gate, process_table = (
            disk_cache or DiskCache(),
            DeviceGate(device),
            ProcessTable(seconds=WATCH_SECONDS),
        )
        connections = settings.connections if device.type == "cuda" else 0
        self._pool = WorkerPool(device, gate, spares=width, connections=connections, process_table=process_table)
        self._builds = BuildPool(
            device,
            settings,
            disk_cache,
            width=builders,
            plain=plain,
            elsewhere=build_elsewhere,
            process_table=process_table,
            # On a CPU it would take the cores from a kernel that is timed.
            while_precompiling=gate.shared if device.type == "cpu" else nullcontext,
        )
        self._court = Court(
            device=device,
            settings=settings,
            gate=gate,
            pool=self._pool,
            builds=self._builds,
            disk_cache=disk_cache,
            repeatability=Repeatability(settings.tie),
            shell_of=shell_of,
        )
        self._docket = Docket()
        self._quiet = QuietThreads()
        self._preparing = threading.Lock()
        self._bench: Bench | None = None

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
        self._builds.close()

    # ---- what can be asked -----------------------------------------------------------------------------------------

    def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem on this device.

        Raises:
            EvaluatorError: the reference fails.
        """
        with self._docket.several(problem.id):
            return self._bench_for(problem).card

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel.

        Raises:
            EvaluatorError: the reference fails, or no worker can be started.
        """
        started = time.perf_counter()
        phases = Phases(self._court.gate)
        found = blank(problem, kernel, self.device, self.settings.precision)
        try:
            # Reading is work for a processor, which on a CPU the timing of another kernel must not share.
            with phases("lint"), self._court.gate.shared() if self.device.type == "cpu" else nullcontext():
                found = read(problem, kernel, found, self.settings, self.device)
            found = self._hear(problem, kernel, found, phases)
        except Rejection as failure:
            found = _rejected(found, failure)
        return replace(
            found,
            build_seconds=phases.seconds.get("build", 0.0),
            seconds=time.perf_counter() - started,
            phases={name: round(seconds, 4) for name, seconds in phases.seconds.items()},
        )

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Time kernels and the reference against each other in the same rounds, all in fresh processes.

        Raises:
            EvaluatorError: the reference fails, or no worker can be started.
        """
        with self._alone_at(problem) as bench:
            tie = self._court.repeatability.tie(problem.id)
            contest = hold_contest(bench, kernels, rounds=rounds, admit=self._admit_to_contest, tie=tie)
            bench.twins.forget(contest.failed)
        for kernel_id, speedup in contest.speedups().items():
            self._court.repeatability.note(problem.id, kernel_id, speedup)
        return contest

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """PyTorch's own ways to run the reference, timed against eager once for each problem, device and versions.

        Raises:
            EvaluatorError: eager itself fails.
        """
        precision, disk_cache = self.settings.precision, self._court.disk_cache
        known = recall(disk_cache, problem=problem.id, device=self.device, precision=precision)
        for name in missing(self.device, known):
            with self._alone_at(problem) as bench:
                known = (*known, self._measure_baseline(bench, name))
            remember(disk_cache, known, problem=problem.id, device=self.device, precision=precision)
        return known

    # ---- one evaluation --------------------------------------------------------------------------------------------

    def _hear(self, problem: Problem, kernel: Kernel, found: Evaluation, phases: Phases) -> Evaluation:
        """Hear a kernel beside others; once more alone when it found no memory beside them, or the reference died."""
        bench = None
        try:
            with self._docket.several(problem.id) as turn:
                with phases("prepare"):
                    bench = self._bench_for(problem)
                # Another's hearing may have broken it meanwhile.
                heard = None if bench.broken else self._hear_at(bench, kernel, found, phases)
            if heard and not (turn.crowded and _lacked_memory(heard)):
                return heard
        except EvaluatorError:
            if bench is None:  # the problem itself is broken
                raise
        with self._alone_at(problem) as bench:
            return self._hear_at(bench, kernel, found, phases)

    def _hear_at(self, bench: Bench, kernel: Kernel, found: Evaluation, phases: Phases) -> Evaluation:
        try:
            found = check_card(bench, found)
            with self._quiet():
                heard = until_sure(lambda: hear(bench, kernel, found, phases), is_doubtful)
            bench.twins.note(heard)
            return heard
        except Rejection as failure:
            return _rejected(found, failure)
        except EvaluatorError:
            bench.broken = True  # its reference's worker may be dead
            raise

    # ---- contests and baselines ------------------------------------------------------------------------------------

    def _admit_to_contest(self, bench: Bench, seat: Seat, kernel: Kernel) -> tuple[Evaluation, float]:
        problem = bench.prepared.problem
        found = blank(problem, kernel, self.device, self.settings.precision)
        found = replace(found, sandbox=seat.worker.sandbox)
        seat.worker.deadline = time.monotonic() + self.settings.total_seconds
        try:
            found = read(problem, kernel, found, self.settings, self.device)
            phases = Phases(self._court.gate)
            build(seat, phases)
            found, kernel_ms = admit(bench, seat, found, phases)
        except Rejection as failure:
            return _rejected(found, failure), math.inf
        finally:
            seat.worker.deadline = math.inf  # it waits for the others now
        return found, kernel_ms

    def _measure_baseline(self, bench: Bench, name: str) -> Baseline:
        try:
            seat, alone = bench.seat_reference(wrap=name)
        except EvaluatorError as error:
            return Baseline(name=name, failure=str(error))
        try:
            held = time_beside_reference(bench, seat.remote, alone.ms, None)
        except Rejection as failure:
            return Baseline(name=name, failure=failure.message)
        finally:
            seat.clear()
        return Baseline.of(name, speedup_of(log_ratios(held, KERNEL), Random(name)))

    # ---- the problem -----------------------------------------------------------------------------------------------

    @contextmanager
    def _alone_at(self, problem: Problem) -> Iterator[Bench]:
        """The problem's bench with nobody else at it."""
        with self._docket.alone(problem.id), self._quiet():
            bench = self._bench_for(problem)
            try:
                yield bench
            except EvaluatorError:
                bench.broken = True
                raise

    def _bench_for(self, problem: Problem) -> Bench:
        """The problem's bench; whoever comes first prepares it, and the others wait.

        A broken one is replaced when nobody else is heard at it, and is returned as it is until then.
        """
        with self._preparing:
            bench = self._bench
            left = bench is not None and bench.prepared.problem.id != problem.id
            if bench is None or left or (bench.broken and not self._docket.crowded):
                self._leave_problem()
                self._bench = bench = Bench(problem, self._court, width=self.width)
            return bench

    def _leave_problem(self) -> None:
        if self._bench is not None:
            self._bench.close()
            self._bench = None


def _lacked_memory(found: Evaluation) -> bool:
    return found.verdict is not Verdict.CORRECT and _OUT_OF_MEMORY in found.message.lower()


def _rejected(found: Evaluation, failure: Rejection) -> Evaluation:
    return replace(found, verdict=failure.verdict, message=failure.message, tags=failure.tags or found.tags)
