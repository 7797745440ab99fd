"""What all evaluations of a judge share, and what all evaluations of one problem share."""

import threading
import time
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.analysis.card import card_for
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.candidate.call import Call, CallCost
from kbevolve.evaluators.candidate.output_check import OutputChecker
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.correctness.kept import PROCESS_BYTES
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.correctness.sketch import compile_ahead
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.device.memory import free_bytes
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.binary_dedup import KnownBinaries, ShellOf
from kbevolve.evaluators.lint.process import LintProcess
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from kbevolve.evaluators.timing.clock import Undisturbed
from kbevolve.evaluators.timing.repeatability import Repeatability
from kbevolve.evaluators.timing.rounds import time_block

#: Turns the reference into a candidate, so that the same program times it.
_REFERENCE_AS_CANDIDATE = "\n\nModelNew = Model\n"
#: Share of the roofline's floor below which a time is impossible. The floor rests on a measured bandwidth, and a kernel
#: may exceed that by a few percent.
_FLOOR_SHARE = 0.9
#: Most calls of the reference, and seconds, to find its undisturbed time. On a quiet machine a few calls suffice.
_MEASURED_CALLS = 100
_MEASURE_SECONDS = 2.0
#: Share of the free memory that kernels in trials side by side may use. One that lacks memory for intermediate results
#: is tried again without others (`judge.Judge`).
_CANDIDATES_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeContext:
    """One device, how kernels are judged on it, and the pools that work for the judge."""

    device: Device
    settings: EvaluationSettings
    gate: DeviceGate
    lint: LintProcess
    workers: WorkerPool
    builds: BuildPool
    #: Facts from earlier processes.
    disk_cache: DiskCache
    #: The speedups measured so far.
    repeatability: Repeatability
    #: Compiles what the judge itself runs on the device; to be joined before something is timed.
    compiling: threading.Thread
    #: Finds kernels with identical binaries; None to judge every kernel itself.
    shell_of: ShellOf | None = None

    def close(self) -> None:
        """End all processes. May be called twice."""
        self.compiling.join()
        self.gate.close()
        self.workers.close()
        self.builds.close()
        self.lint.close()


def open_context(
    device: Device,
    settings: EvaluationSettings,
    disk_cache: DiskCache,
    *,
    width: int,
    builders: int,
    plain: bool,
    shell_of: ShellOf | None,
    fork_server: ForkServer | None,
) -> JudgeContext:
    """Start the first workers; the arguments are those of `judge.Judge`."""
    on_cpu, gate = device.type == "cpu", DeviceGate(device)
    connections = 0 if on_cpu else settings.connections
    workers = WorkerPool(device, gate, spares=width, connections=connections, fork_server=fork_server)
    builds = BuildPool(
        *(device, settings, disk_cache),
        width=builders,
        plain=plain,
        offer_compiler=None if on_cpu else workers.compiler,
        # On a CPU, precompiling would take the cores from a kernel that is timed.
        while_precompiling=gate.shared if on_cpu else nullcontext,
    )
    return JudgeContext(
        device=device,
        settings=settings,
        gate=gate,
        lint=LintProcess(),
        workers=workers,
        builds=builds,
        disk_cache=disk_cache,
        repeatability=Repeatability(settings.tie),
        compiling=compile_ahead(device.torch_name),
        shell_of=shell_of,
    )


def start_candidate(
    judge: JudgeContext, prepared: PreparedProblem, source: str, *, wrap: str = "eager", one_stream: bool = False
) -> CandidateProcess:
    """A fresh worker for one kernel, which is not loaded yet; `one_stream`: it works on one CUDA stream only."""
    worker = judge.workers.take(one_stream=one_stream)
    worker.builder = judge.builds.builder
    if judge.device.type == "cuda":
        # On a CPU compilers run on the cores on which kernels are timed, so there the thread keeps the device.
        worker.while_compiling = partial(judge.gate.released, worker)
    return CandidateProcess(worker, judge.device, prepared, judge.settings, source, gate=judge.gate, wrap=wrap)


class ProblemContext:
    """One problem set up on a device: its truth, its card, and a process for the reference.

    Kernels may be tried in several threads, each in a `CandidateProcess`; `memory` limits how many at once. `close`
    ends the reference's process and frees the memory.
    """

    def __init__(self, problem: Problem, judge: JudgeContext, *, width: int) -> None:
        """Run the reference, analyse the problem, warm up the reference's process.

        At most `width` kernels are tried at once; fewer where memory is short.

        Raises:
            EvaluatorError: the reference fails, here or in a worker.
        """
        self.judge = judge
        self.device = judge.device
        #: Whether the reference's process failed; the judge then sets the problem up again.
        self.broken = False
        with judge.gate.exclusive():
            self.prepared = PreparedProblem(problem, judge.device, judge.settings)
            #: What is known about the problem; cached on disk.
            self.card: ProblemCard = self._card()
            self.checker = OutputChecker(self.prepared, fresh_weights=not judge.settings.allow_prepacked)
        #: Kernels with the binary of a kernel that was judged before.
        self.binaries = KnownBinaries(judge.shell_of)
        #: Largest lower end of a speedup so far; only kernels near it are examined closely.
        self.best_speedup = 0.0
        #: The undisturbed time of the reference's process; lowered whenever a measurement shows it faster.
        self.undisturbed: Undisturbed
        self.reference, self.undisturbed = self.start_reference()
        # The cached card may be from a busier day.
        self.card = replace(self.card, eager_ms=self.undisturbed.ms)
        #: How many kernels fit into memory side by side, at most the judge's width.
        self.fitting = self._fitting(width)
        #: To be entered before a kernel gets memory.
        self.memory = threading.BoundedSemaphore(self.fitting)
        #: What it costs to launch a call of the reference; None where it is not measured.
        self.reference_cost = self.launch_cost(self.reference)

    def _card(self, *, fresh: bool = False) -> ProblemCard:
        judge, prepared = self.judge, self.prepared
        return card_for(
            prepared.problem,
            judge.device,
            judge.settings.precision,
            reference=prepared.reference if prepared.factors is None else None,  # the card has weights of its own
            disk_cache=judge.disk_cache,
            fresh=fresh,
        )

    def _fitting(self, width: int) -> int:
        free = free_bytes(self.device) - width * PROCESS_BYTES
        if not self.prepared.kept.fit:
            free -= self.prepared.truth_bytes
        return max(1, min(width, int(_CANDIDATES_SHARE * free / self.prepared.worker_bytes)))

    def start(self, source: str, *, wrap: str = "eager", one_stream: bool = False) -> CandidateProcess:
        """As `start_candidate`, for this problem."""
        return start_candidate(self.judge, self.prepared, source, wrap=wrap, one_stream=one_stream)

    def start_reference(self, *, wrap: str = "eager") -> tuple[CandidateProcess, Undisturbed]:
        """The reference in a fresh worker, warm, and its undisturbed time; EvaluatorError when it fails there."""
        reference = self.start(self.prepared.reference.source + _REFERENCE_AS_CANDIDATE, wrap=wrap)
        try:
            with reference.on_device():
                reference.load()
                reference.allocate()
                reference.construct(self.prepared.weights)
                reference.timed_call(self.prepared.first_inputs())
            return reference, self._measure(reference)
        except BaseException as failure:  # Ctrl-C as well
            reference.close()
            if not isinstance(failure, Rejection):
                raise
            raise EvaluatorError(
                f"{self.prepared.problem.name}: the reference fails in a worker process: "
                f"{' '.join(failure.message.split())}; it must be one self-contained file"
            ) from None

    def renew_reference(self) -> CandidateProcess:
        """A fresh process for the reference, in place of the one before; EvaluatorError when it fails there."""
        self.reference.close()  # first: memory may not suffice for both
        self.reference, undisturbed = self.start_reference()
        self.undisturbed = self.undisturbed.or_less(undisturbed)
        return self.reference

    def is_impossible(self, time_ms: float, precision_class: str | None) -> bool:
        """Whether no kernel can do the problem's work in this time, at the device's measured rates.

        Never on a CPU, whose rates depend on the load of the machine.
        """
        if self.device.type == "cpu" or not self.is_beyond_roofline(time_ms, precision_class):
            return False
        # The cached rates may have been measured beside other work.
        with self.judge.gate.exclusive():
            self.card = replace(self._card(fresh=True), eager_ms=self.undisturbed.ms)
        return self.is_beyond_roofline(time_ms, precision_class)

    def is_beyond_roofline(self, time_ms: float, precision_class: str | None) -> bool:
        """Whether a time is below the card's floor for a precision class."""
        return time_ms < _FLOOR_SHARE * self.card.floor_ms.get(precision_class or "", 0.0)

    def with_least_cap(self, cap: float) -> Self:
        """The same context, but the outputs of timed calls may have at least this error (`correctness.rule.CAPS`)."""
        other = copy(self)
        other.checker = OutputChecker(self.prepared, least_cap=cap)
        return other

    def launch_cost(self, process: CandidateProcess) -> CallCost | None:
        """What it costs to launch a call; None on a CPU, without profiles, and where the process fails.

        It informs people and proposers, so a failure has no consequence. It takes some 0.2 s, or two calls.
        """
        if self.device.type == "cpu" or not self.judge.settings.profile:
            return None
        with self.judge.gate.exclusive() as waited, suppress(Rejection):
            process.worker.deadline += waited
            return process.launch_cost(self.prepared.first_inputs())
        return None

    def measure_reference(self) -> float:
        """Milliseconds of an undisturbed call of the reference, measured now; EvaluatorError when it fails."""
        try:
            return self._measure(self.reference).ms
        except Rejection as failure:
            raise EvaluatorError(f"the reference failed when timed again: {failure.message}; try again") from None

    def _measure(self, reference: CandidateProcess) -> Undisturbed:
        self.judge.compiling.join()
        with self.judge.gate.exclusive():
            started, warm = time.monotonic(), self.prepared.first_inputs()
            calls: list[Call] = []
            while len(calls) < _MEASURED_CALLS and time.monotonic() - started < _MEASURE_SECONDS:
                block, _ = time_block(reference, self.checker, [self.checker.draw()], warm=warm, warmup=0)
                calls += block.calls
                if Undisturbed.of(calls).is_certain(calls):
                    break
            if not self.prepared.kept.fit:
                reference.release_memory()
            return Undisturbed.of(calls)

    def close(self) -> None:
        """May be called twice."""
        self.reference.close()
