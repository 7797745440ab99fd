"""The trusted side: the truth, the seeds, the tolerances and the verdict. It never imports a candidate."""

import ast
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Self

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.bench import Bench, Seat, single_thread
from kbevolve.evaluators.correctness.trials import run_trials
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.feedback.profile import read_profile
from kbevolve.evaluators.intake.roofline import roofline_of
from kbevolve.evaluators.isolation.remote import RemoteKernel
from kbevolve.evaluators.isolation.workers import WorkerPool
from kbevolve.evaluators.lint import lint
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.shelf import Shelf
from kbevolve.evaluators.timing.baselines import Baseline, best, missing, over_best, recall, remember
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.contests import hold_contest
from kbevolve.evaluators.timing.rounds import plan_for
from kbevolve.evaluators.timing.series import (
    REFERENCE,
    Round,
    disturbs,
    hold_believed,
    log_ratios,
    measurements,
    median_ms,
)
from kbevolve.evaluators.timing.statistics import Speedup, between_processes, enough, speedup_of, standing_of, tie_width

#: A kernel that took this many times the reference's time in each of the first rounds is not timed any longer.
CLEARLY_SLOW = 2.0
#: Rounds after which that is asked.
_FIRST_ROUNDS = 3
#: Kernels this close to the best one here are profiled: the profiler costs a second, and only parents need it.
_WORTH_PROFILING = 0.9
#: Name of the only kernel in an evaluation, beside the reference.
_KERNEL = "kernel"


class Judge:
    """Judges kernels on one device, one after another; implements `Evaluator` and `Confirmer`.

    Each kernel gets a worker process of its own, which is killed afterwards. What belongs to the problem (truth,
    inputs, a worker for the reference) is kept until another problem comes. Not for several threads at once.
    """

    def __init__(self, device: Device, settings: EvaluationSettings, *, shelf: Shelf | None = None) -> None:
        self.device = device
        self.settings = settings
        #: Seconds of the last evaluation by phase, in order.
        self.phases: dict[str, float] = {}
        self._shelf = shelf or Shelf()
        # Two at first: one for the reference, one for the first kernel.
        self._pool = WorkerPool(device, first=2)
        self._bench: Bench | None = None
        # Problem -> kernel -> log speedups, each measured in fresh processes: what they differ by is no merit.
        self._measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

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

    # ---- what can be asked -----------------------------------------------------------------------------------------

    def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem on this device.

        Raises:
            EvaluatorError: the reference fails.
        """
        return self._bench_for(problem).card

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Judge one kernel.

        Raises:
            EvaluatorError: the reference fails, or no worker can be started.
        """
        started = time.perf_counter()
        self.phases = {}
        found = self._blank(problem, kernel)
        try:
            found = self._read(problem, kernel, found)
            with self._phase("prepare"):
                bench = self._bench_for(problem)
            found = self._check_card(bench, found)
            with single_thread():
                found = self._judge(bench, kernel, found)
        except Rejection as failure:
            tags = failure.tags or found.tags
            found = replace(found, verdict=failure.verdict, message=failure.message, tags=tags)
        return replace(found, build_seconds=self.phases.get("build", 0.0), seconds=time.perf_counter() - started)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Time kernels and the reference against each other in the same rounds, all in fresh processes.

        Raises:
            EvaluatorError: the reference fails, or no worker can be started.
        """
        bench = self._bench_for(problem)
        with single_thread():
            contest = hold_contest(
                bench,
                kernels,
                rounds=rounds,
                admit=self._admit_to_contest,
                settle=self._pool.settle,
                tie=self._tie(problem),
            )
        for kernel_id, speedup in contest.speedups().items():
            self._remember(problem, kernel_id, speedup)
        return contest

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """PyTorch's own ways to run the reference, timed against eager once for each problem, device and versions.

        Raises:
            EvaluatorError: eager itself fails.
        """
        known = self._known_baselines(problem)
        for name in missing(self.device, known):
            with single_thread():
                known = (*known, self._measure_baseline(self._bench_for(problem), name))
            remember(self._shelf, known, problem=problem.id, device=self.device, precision=self.settings.precision)
        return known

    # ---- one evaluation --------------------------------------------------------------------------------------------

    def _blank(self, problem: Problem, kernel: Kernel) -> Evaluation:
        return Evaluation(
            kernel=kernel.id,
            problem=problem.id,
            device=self.device.fingerprint,
            precision=self.settings.precision,
            verdict=Verdict.CORRECT,
        )

    def _read(self, problem: Problem, kernel: Kernel, found: Evaluation) -> Evaluation:
        """Tags from the source, which is refused when it is no candidate, or holds what has no honest use."""
        _check_format(kernel.source)
        reference = problem.source_for(self.device.type)
        seen = lint(kernel.source, allow_library=self.settings.allow_library, reference_source=reference)
        if seen.refusal:
            raise Rejection(Verdict.REFUSED, seen.refusal, tags=seen.tags)
        return replace(found, tags=seen.tags)

    def _check_card(self, bench: Bench, found: Evaluation) -> Evaluation:
        found = replace(found, tags=(*found.tags, *bench.prepared.tags, *bench.card.flags))
        if bench.card.degenerate and not self.settings.force:
            why = bench.card.flags["degenerate"].rstrip(".")
            raise Rejection(
                Verdict.REFUSED,
                f"the problem is degenerate: {why}; change its inputs or sizes, or judge it all the same with --force",
                tags=found.tags,
            )
        return found

    def _judge(self, bench: Bench, kernel: Kernel, found: Evaluation) -> Evaluation:
        with self._phase("worker"):
            worker = self._pool.take()
        found = replace(found, sandbox=worker.sandbox)
        worker.deadline = time.monotonic() + self.settings.total_seconds
        try:
            remote = RemoteKernel(worker, bench.arena, bench.prepared, self.settings, kernel.source)
            found, kernel_ms = self._admit(bench, remote, found)
            if found.verdict < Verdict.CORRECT:
                return found
            waiting = time.monotonic()
            with self._phase("wait"):
                self._pool.settle()
            worker.deadline += time.monotonic() - waiting  # others' fault, not the kernel's
            with self._phase("timing"):
                held = self._time(remote, bench, kernel_ms, found.precision_class)
            found = self._profile(remote, bench, self._conclude(bench, held, found))
            if worker.census()[0] > 1:
                found = replace(found, tags=(*found.tags, "left-processes"))
        except Rejection as failure:
            raise Rejection(failure.verdict, failure.message, tags=found.tags) from None
        finally:
            with self._phase("end"):
                worker.kill()
        if disturbs(bench, held):
            raise Rejection(
                Verdict.REFUSED, "not accepted: work of it was still on the device after its calls", tags=found.tags
            )
        return found

    def _admit(self, bench: Bench, remote: RemoteKernel, found: Evaluation) -> tuple[Evaluation, float]:
        """Build and try a kernel; also the milliseconds of its fastest call."""
        with self._phase("build"):
            remote.load()
        with self._phase("trials"):
            found, kernel_ms = run_trials(remote, bench.prepared, found)
        if "prepacked-weights" in found.tags and not self.settings.allow_prepacked:
            raise Rejection(
                Verdict.REFUSED, "not accepted: it keeps weights in a form of its own; read the parameters in each call"
            )
        return found, kernel_ms

    def _time(self, remote: RemoteKernel, bench: Bench, kernel_ms: float, precision_class: str | None) -> list[Round]:
        plans = {
            name: plan_for(call_ms, self.settings, most_calls=bench.prepared.most_calls)
            for name, call_ms in ((REFERENCE, bench.reference_ms), (_KERNEL, kernel_ms))
        }
        least = plans[_KERNEL].least_rounds

        def is_enough(held: Sequence[Round]) -> bool:
            ratios = log_ratios(held, _KERNEL)
            if len(ratios) == _FIRST_ROUNDS and max(ratios) < -math.log(CLEARLY_SLOW):
                return True
            return len(ratios) >= least and enough(ratios, self.settings.interval)

        try:
            kernels = {REFERENCE: bench.reference.remote, _KERNEL: remote}
            return hold_believed(bench, kernels, plans, {_KERNEL: precision_class}, is_enough=is_enough)
        except EvaluatorError:
            self._leave_problem()  # its reference worker may be dead
            raise

    def _conclude(self, bench: Bench, held: Sequence[Round], found: Evaluation) -> Evaluation:
        """The numbers of an evaluation from its rounds."""
        problem, ratios = bench.prepared.problem, log_ratios(held, _KERNEL)
        # Seeded by the kernel: an interval computed again from the archived blocks comes out the same.
        speedup = speedup_of(ratios, Random(found.kernel))
        self._remember(problem, found.kernel, speedup)
        bench.best_speedup = max(bench.best_speedup, speedup.low)
        slow = len(held) == _FIRST_ROUNDS and max(ratios) < -math.log(CLEARLY_SLOW)
        known = self._known_baselines(problem)
        time_ms = median_ms(held, _KERNEL)
        tags = {
            "clearly-slow": slow,
            "beyond-roofline": bench.is_beyond_roofline(time_ms, found.precision_class),
        }
        return replace(
            found,
            time_ms=time_ms,
            reference_ms=median_ms(held, REFERENCE),
            speedup=speedup.estimate,
            speedup_low=speedup.low,
            speedup_high=speedup.high,
            standing=standing_of(speedup.low, speedup.high, self._tie(problem)),
            speedup_best=over_best(speedup.estimate, known) if known else None,
            best_baseline=best(known).name if known else None,
            tags=(*found.tags, *(tag for tag, holds in tags.items() if holds)),
            blocks=tuple(measurements(held, {REFERENCE: "reference", _KERNEL: "child"})),
        )

    def _profile(self, remote: RemoteKernel, bench: Bench, found: Evaluation) -> Evaluation:
        worth = (found.speedup_low or 0.0) >= _WORTH_PROFILING * bench.best_speedup
        if not self.settings.profile or not worth or found.time_ms is None:
            return found
        with self._phase("profile"):
            try:
                told = remote.profile(bench.prepared.trial(0).inputs)
            except Rejection:  # its numbers stand; only the feedback is shorter
                return found
        profile = read_profile(
            told,
            time_ms=found.time_ms,
            card=bench.card,
            precision_class=found.precision_class,
            roofline=roofline_of(self.device, shelf=self._shelf),
        )
        return replace(found, profile=profile)

    # ---- contests and baselines ------------------------------------------------------------------------------------

    def _admit_to_contest(self, bench: Bench, seat: Seat, kernel: Kernel) -> tuple[Evaluation, float]:
        found = replace(self._blank(bench.prepared.problem, kernel), sandbox=seat.worker.sandbox)
        seat.worker.deadline = time.monotonic() + self.settings.total_seconds
        try:
            found = self._read(bench.prepared.problem, kernel, found)
            found, kernel_ms = self._admit(bench, seat.remote, found)
        except Rejection as failure:
            return replace(found, verdict=failure.verdict, message=failure.message), math.inf
        finally:
            seat.worker.deadline = math.inf  # it waits for the others now
        return found, kernel_ms

    def _measure_baseline(self, bench: Bench, name: str) -> Baseline:
        try:
            seat, call_ms = bench.seat_reference(wrap=name)
        except EvaluatorError as error:
            return Baseline(name=name, failure=str(error))
        try:
            self._pool.settle()
            held = self._time(seat.remote, bench, call_ms, None)
        except Rejection as failure:
            return Baseline(name=name, failure=failure.message)
        finally:
            seat.clear()
        return Baseline.of(name, speedup_of(log_ratios(held, _KERNEL), Random(name)))

    def _known_baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        return recall(self._shelf, problem=problem.id, device=self.device, precision=self.settings.precision)

    # ---- noise between processes -----------------------------------------------------------------------------------

    def _remember(self, problem: Problem, kernel_id: str, speedup: Speedup) -> None:
        self._measured[problem.id][kernel_id].append(math.log(speedup.estimate))

    def _tie(self, problem: Problem) -> float:
        """Share up to which a difference is noise between processes."""
        return tie_width(self.settings.tie, between_processes(self._measured[problem.id].values()))

    # ---- the problem -----------------------------------------------------------------------------------------------

    def _bench_for(self, problem: Problem) -> Bench:
        if self._bench is None or self._bench.prepared.problem.id != problem.id:
            self._leave_problem()
            self._bench = Bench(problem, self.device, self.settings, self._pool, self._shelf)
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
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


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
