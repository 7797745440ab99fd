"""The judge of one device: evaluates kernels, holds contests, measures baselines."""

import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from random import Random
from typing import TypeVar

import torch

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard, Verdict, changed
from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness.rule import CAPS
from kbevolve.evaluators.device import memory
from kbevolve.evaluators.device.devices import Device, current
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.admission import Admission
from kbevolve.evaluators.judging.binary_dedup import ShellOf
from kbevolve.evaluators.judging.check import check_alone
from kbevolve.evaluators.judging.context import ProblemContext, open_context
from kbevolve.evaluators.judging.head_to_head import run_contest
from kbevolve.evaluators.judging.paired_timing import KERNEL, log_ratios, time_beside_reference
from kbevolve.evaluators.judging.phases import Phases
from kbevolve.evaluators.judging.pipeline import (
    check_problem,
    check_source,
    empty_evaluation,
    evaluate_in_process,
    is_doubtful,
    lacked_memory,
    rejected,
)
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.timing.baselines import DEFAULT_FLAGS, Baseline, missing, recall, remember
from kbevolve.evaluators.timing.clock import repeat_while
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.statistics import speedup_of

_Result = TypeVar("_Result")

#: Most kernels under way at once on a GPU: one is timed, some are in trials, most compile. Each has a core for itself,
#: and the judge and its timing have two.
_WIDEST = 16
_TIMING_CORES = 2
#: Seconds for which a thread may keep the interpreter while others wait for it. With Python's default, 5 ms, the thread
#: that times a kernel waits at each call for threads that read replies and reports of builds.
_SWITCH_SECONDS = 0.0005


def width_for(device: Device, asked: int = 0) -> int:
    """Kernels that may be under way at once: `asked`, or by default as many as this machine has cores for.

    On a CPU all cores belong to the kernel that is timed.
    """
    if asked:
        return asked
    return 1 if device.type == "cpu" else max(1, min(_WIDEST, len(os.sched_getaffinity(0)) - _TIMING_CORES))


class Judge(AbstractContextManager["Judge"]):
    """Judges kernels on one device; implements `Evaluator`, `Checker` and `Confirmer`.

    Each kernel gets a worker process of its own, which is killed afterwards. What belongs to the problem (truth,
    inputs, the reference's worker) is kept until another problem is asked for.

    All methods may be called from several threads. Up to `width` kernels of one problem are built and tried side by
    side. One at a time is timed, with the device to itself. A contest or a baseline runs alone.
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
        shell_of: ShellOf | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        """Start the first workers.

        Args:
            device: to judge on.
            settings: of every evaluation.
            disk_cache: facts that outlive the process; None for the user's own.
            width: kernels that may be under way at once.
            builders: compilers at once; 0 for as many as the machine has cores for.
            plain: build as torch itself does, without lighter or precompiled headers: slowly.
            shell_of: finds kernels with identical binaries (`judging.binary_dedup`); None judges each kernel itself.
            fork_server: opened early (`launch.open_fork_server_early`); closed with the judge.
        """
        memory.refuse_beyond_free(device)
        self.device, self.settings, self.width = device, settings, width
        self._switch_seconds = sys.getswitchinterval()
        if width > 1:
            sys.setswitchinterval(_SWITCH_SECONDS)
        self._context = open_context(
            *(device, settings, disk_cache or DiskCache()),
            width=width,
            builders=builders,
            plain=plain,
            shell_of=shell_of,
            fork_server=fork_server,
        )
        self._admission = Admission()
        self._threads = torch.get_num_threads()
        self._preparing = threading.Lock()
        self._problem: ProblemContext | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and free the memory. May be called twice."""
        self._leave_problem()
        self._context.close()
        sys.setswitchinterval(self._switch_seconds)

    def card(self, problem: Problem) -> ProblemCard:
        """What is known about a problem on this device; EvaluatorError when the reference fails."""

        def card() -> ProblemCard:
            with self._admission.shared(problem.id):
                return self._set_up(problem).card

        return self._or_release(problem, card)

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Implements `Evaluator.evaluate`."""
        started = time.perf_counter()
        phases = Phases(self._context.gate)
        found = empty_evaluation(problem, kernel, self.device, self.settings.precision)
        try:
            # The lint needs a core, which on a CPU belongs to the kernel that is timed.
            with phases("lint"), self._context.gate.shared() if self.device.type == "cpu" else nullcontext():
                found = check_source(problem, kernel, found, self._context)
            linted = found
            found = self._or_release(problem, lambda: self._evaluate_beside_others(problem, kernel, linted, phases))
        except Rejection as failure:
            found = rejected(found, failure)
        except KBEvolveError:
            raise
        except Exception as error:
            self._set_up_again(problem, error)
            found = rejected(found, Rejection(Verdict.CRASHED, "the judge failed over it, and over nothing else"))
        return changed(
            found,
            build_seconds=phases.seconds.get("build", 0.0),
            seconds=time.perf_counter() - started,
            phases={name: round(seconds, 4) for name, seconds in phases.seconds.items()},
        )

    def check(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """Implements `Checker.check`."""

        def check() -> Evaluation:
            with self._admission.exclusive(problem.id), _one_thread(self._threads):
                self._leave_problem()  # two do not fit into memory
                return check_alone(self._context, problem, kernel)

        return self._or_release(problem, check)

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> Contest:
        """Implements `Confirmer.compete`. Of more kernels than fit into memory, the last are left out."""
        repeatability = self._context.repeatability

        def contest() -> Contest:
            with self._alone_with(problem) as context:
                found = run_contest(context, kernels, rounds=rounds, tie=repeatability.tie(problem.id))
                context.binaries.forget(found.failed)
                return found

        try:
            held = self._or_release(problem, contest)
        except memory.TooLittleMemoryError:
            if len(kernels) == 1:
                raise
            return self.compete(problem, kernels[: (len(kernels) + 1) // 2], rounds=rounds)
        for kernel_id, speedup in held.speedups().items():
            repeatability.add(problem.id, kernel_id, speedup.estimate)
        return held

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """PyTorch's own ways to run the reference, timed against eager once for each problem, device and versions."""
        precision, disk_cache = self.settings.precision, self._context.disk_cache
        known = recall(disk_cache, problem=problem.id, device=self.device, precision=precision)
        for name in missing(self.device, known):
            known = (*known, self._or_release(problem, partial(self._measure_baseline, problem, name)))
            remember(disk_cache, known, problem=problem.id, device=self.device, precision=precision)
        return known

    def _evaluate_beside_others(
        self, problem: Problem, kernel: Kernel, found: Evaluation, phases: Phases
    ) -> Evaluation:
        """Evaluate a kernel beside others; again alone if it or the judge found no memory, or the reference died."""
        context = None
        try:
            with self._admission.shared(problem.id) as slot:
                with phases("prepare"):
                    context = self._set_up(problem)
                # The evaluation of another kernel may have broken the context.
                done = None if context.broken else self._evaluate(context, kernel, found, phases)
            if done and not (slot.was_shared and lacked_memory(done)):
                return done
        except (EvaluatorError, torch.OutOfMemoryError):
            if context is None:  # the problem itself cannot be set up
                raise
        context = None  # it may be replaced, and two do not fit into memory
        with self._alone_with(problem) as context:
            return self._evaluate(context, kernel, found, phases)

    def _evaluate(self, context: ProblemContext, kernel: Kernel, found: Evaluation, phases: Phases) -> Evaluation:
        try:
            checked = found = check_problem(context, found)
            with _one_thread(self._threads):
                found = repeat_while(is_doubtful, lambda: evaluate_in_process(context, kernel, checked, phases))
            context.binaries.remember(found)
            return found
        except Rejection as failure:
            return rejected(found, failure)
        except EvaluatorError:
            context.broken = True  # the reference's worker may be dead
            raise

    def _set_up_again(self, problem: Problem, error: Exception) -> None:
        """After an error that nothing foresees: raise it again unless the problem can be set up again and
        its reference runs.

        If they do, neither device nor judge is broken, and the kernel that was evaluated is to blame.
        """
        traceback.clear_frames(error.__traceback__)  # they hold tensors
        with self._admission.exclusive(problem.id), _one_thread(self._threads), current(self.device):
            if self._problem is not None:
                self._problem.broken = True
            try:
                self._set_up(problem)
            except Exception:
                raise error from None

    def _measure_baseline(self, problem: Problem, name: str) -> Baseline:
        with self._alone_with(problem) as context:
            return self._baseline(context, name)

    def _baseline(self, context: ProblemContext, name: str) -> Baseline:
        try:
            wrapped, undisturbed = context.start_reference(wrap=name)
        except EvaluatorError as error:
            return Baseline(name=name, failure=str(error))
        if name == DEFAULT_FLAGS:
            context = context.with_least_cap(CAPS["tf32"])
        try:
            rounds = time_beside_reference(context, wrapped, undisturbed.ms, None)
        except Rejection as failure:
            return Baseline(name=name, failure=failure.message)
        finally:
            wrapped.close()
        return Baseline.of(name, speedup_of(log_ratios(rounds, KERNEL), Random(name)))

    @contextmanager
    def _alone_with(self, problem: Problem) -> Iterator[ProblemContext]:
        """The problem's context, while no other kernel is evaluated."""
        with self._admission.exclusive(problem.id), _one_thread(self._threads):
            context = self._set_up(problem)
            try:
                yield context
            except EvaluatorError:
                context.broken = True
                raise

    def _set_up(self, problem: Problem) -> ProblemContext:
        """The problem's context. The first thread that asks sets it up, and the others wait.

        A broken context is replaced once no other kernel is evaluated in it; until then it is returned as it is.
        """
        with self._preparing:
            context = self._problem
            is_other = context is not None and context.prepared.problem.id != problem.id
            if context is None or is_other or (context.broken and not self._admission.is_shared):
                context = None  # two do not fit into memory
                self._leave_problem()
                self._problem = context = ProblemContext(problem, self._context, width=self.width)
            return context

    def _or_release(self, problem: Problem, act: Callable[[], _Result]) -> _Result:
        """The result of `act`. Where the judge runs out of memory, release all that it holds: EvaluatorError of a line.

        What the frames of the error hold is free when it is gone, so it is not the cause of the new one.
        """
        try:
            with current(self.device):
                return act()
        except (EvaluatorError, torch.OutOfMemoryError) as error:
            if not memory.is_out_of_memory(error):
                raise
            failure = memory.lack_of_memory(problem.name, self.device, error)
        gc.collect()
        with self._admission.exclusive(problem.id):
            self._leave_problem()
        raise failure

    def _leave_problem(self) -> None:
        with current(self.device):
            if self._problem is not None:
                self._problem.close()
                self._problem = None
            memory.release_cache(self.device)


@contextmanager
def _one_thread(usual: int) -> Iterator[None]:
    """Let torch use one thread here, and afterwards as many as usual.

    After any use the threads of torch's pool spin for 10 ms, on the cores that the workers are timed on. torch keeps
    the number for each calling thread, so each one restores it.
    """
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
