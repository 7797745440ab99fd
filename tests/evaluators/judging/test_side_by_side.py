"""Several kernels before one judge at once: the same verdicts, one is timed at a time, and a contest is held alone."""

import math
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.remote import RemoteKernel
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging import pipeline
from kbevolve.evaluators.judging.judge import Judge, width_for
from kbevolve.evaluators.sandbox.quiet_threads import QuietThreads
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory
from kbevolve.evaluators.sandbox.worker_pool import Worker, WorkerPool
from tests.evaluators.judging.test_judge import PROBLEM, RIGHT, candidate, problem_of

CPU = find_device("cpu")
SETTINGS = EvaluationSettings(
    trials=3, warmup=0, rounds=3, calls_per_round=2, timing_seconds=0.2, build_seconds=60, import_seconds=10,
    run_seconds=3, total_seconds=60, profile=False,
)  # fmt: skip
OTHER = PROBLEM.replace("torch.relu(x @ self.weight)", "torch.tanh(x @ self.weight)")
#: Body -> verdict.
BODIES = {
    RIGHT: Verdict.CORRECT,
    "return (x @ self.weight).clamp_min(0)": Verdict.CORRECT,
    "return x @ self.weight": Verdict.WRONG,
    "raise ValueError('no')": Verdict.CRASHED,
    "raise SystemExit(3)": Verdict.CRASHED,
    "time.sleep(60)": Verdict.TIMED_OUT,
}


@dataclass(frozen=True)
class Asked:
    problem: Problem
    kernel: Kernel
    expected: Verdict


def asked() -> Iterator[Asked]:
    for number, (body, expected) in enumerate(BODIES.items()):
        yield Asked(problem_of(), Kernel.from_source(candidate(body, first=f"# {number}\n")), expected)
    for number in range(2):
        body = candidate("return torch.tanh(x @ self.weight)", first=f"# other {number}\n")
        yield Asked(problem_of(OTHER), Kernel.from_source(body), Verdict.CORRECT)


@pytest.mark.slow
def test_side_by_side_is_as_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "disturbs", lambda *_: False)
    timed: list[tuple[float, float]] = []
    heard: list[tuple[float, float]] = []
    real_call = RemoteKernel.timed_call
    lock = threading.Lock()
    inside = [0]

    def timed_call(self: RemoteKernel, inputs: object) -> object:
        with lock:
            inside[0] += 1
            assert inside[0] == 1, "two kernels were timed at once"
        started = time.monotonic()
        try:
            return real_call(self, inputs)  # type: ignore[arg-type]
        finally:
            with lock:
                timed.append((started, time.monotonic()))
                inside[0] -= 1

    real_attempt = RemoteKernel.attempt

    def attempt(self: RemoteKernel, inputs: object) -> object:
        started = time.monotonic()
        try:
            return real_attempt(self, inputs)  # type: ignore[arg-type]
        finally:
            with lock:
                heard.append((started, time.monotonic()))

    monkeypatch.setattr(RemoteKernel, "attempt", attempt)
    jobs = list(asked())
    with Judge(CPU, SETTINGS, width=4) as judge, ThreadPoolExecutor(4) as pool:
        # The reference is called through `timed_call` when it is seated, beside nobody but not alone at the gate.
        for problem in {job.problem.id: job.problem for job in jobs}.values():
            judge.card(problem)
        monkeypatch.setattr(RemoteKernel, "timed_call", timed_call)
        found: list[Evaluation] = list(pool.map(lambda job: judge.evaluate(job.problem, job.kernel), jobs))
    for job, one in zip(jobs, found, strict=True):
        assert one.verdict is job.expected, one.message
        assert one.kernel == job.kernel.id
        assert one.problem == job.problem.id
        assert one.started_at > 0
        assert {"read", "prepare", "worker", "build", "trials", "end"} <= one.phases.keys()
        assert sum(one.phases.values()) <= one.seconds + 0.01
    assert timed
    beside = [call for call in heard if any(call[0] < end and start < call[1] for start, end in timed)]
    assert not beside, "a kernel was tried while another was timed"


def test_a_contest_waits_until_all_are_through() -> None:
    slow = Kernel.from_source(candidate(f"time.sleep(0.05)\n{RIGHT}"))
    fast = Kernel.from_source(candidate(RIGHT))
    ended: dict[str, float] = {}
    with Judge(CPU, SETTINGS, width=2) as judge, ThreadPoolExecutor(2) as pool:
        judge.card(problem_of())
        evaluated = pool.submit(judge.evaluate, problem_of(), slow)
        evaluated.add_done_callback(lambda _: ended.setdefault("evaluate", time.monotonic()))
        while not judge._docket._heard:
            time.sleep(0.01)
        contest = judge.compete(problem_of(), [fast], rounds=3)
        ended["compete"] = time.monotonic()
        assert evaluated.result().verdict is Verdict.CORRECT
    assert ended["evaluate"] < ended["compete"]
    assert fast.id in contest.times


def test_who_found_no_memory_beside_others_is_heard_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    greedy = Kernel.from_source(candidate("raise MemoryError('out of memory')"))
    meek = Kernel.from_source(candidate(f"time.sleep(0.1)\n{RIGHT}"))
    heard: list[tuple[str, bool]] = []
    hear = pipeline.hear
    with Judge(CPU, SETTINGS, width=2) as judge, ThreadPoolExecutor(2) as pool:
        judge.card(problem_of())

        def counted(bench: object, kernel: Kernel, *rest: object) -> Evaluation:
            heard.append((kernel.id, judge._docket._alone))
            return hear(bench, kernel, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr("kbevolve.evaluators.judging.judge.hear", counted)
        first = pool.submit(judge.evaluate, problem_of(), meek)
        while not heard:
            time.sleep(0.01)
        found = judge.evaluate(problem_of(), greedy)
        assert first.result().verdict is Verdict.CORRECT
    assert found.verdict is Verdict.CRASHED
    assert [alone for kernel, alone in heard if kernel == greedy.id] == [False, True]
    assert [alone for kernel, alone in heard if kernel == meek.id] == [False]


def test_a_reference_that_died_gets_a_successor() -> None:
    with Judge(CPU, SETTINGS) as judge:
        judge.card(problem_of())
        assert judge._bench is not None
        dead = judge._bench.reference.worker
        dead.end()
        assert judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT))).verdict is Verdict.CORRECT
        assert judge._bench.reference.worker is not dead


def test_a_reference_that_dies_again_and_again_is_the_rigs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    real_call = RemoteKernel.timed_call

    def timed_call(self: RemoteKernel, inputs: object) -> object:
        if judge._bench is not None and self is judge._bench.reference.remote:
            self.worker.end()
        return real_call(self, inputs)  # type: ignore[arg-type]

    with Judge(CPU, SETTINGS) as judge:
        judge.card(problem_of())
        monkeypatch.setattr(RemoteKernel, "timed_call", timed_call)
        with pytest.raises(EvaluatorError, match="the reference failed"):
            judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT)))


def test_who_comes_to_a_broken_problem_beside_others_is_heard_alone() -> None:
    """The reference of a hearing that still goes on has died: that is no fault of the next kernel, nor of the rig."""
    meek = Kernel.from_source(candidate(f"time.sleep(0.3)\n{RIGHT}"))
    with Judge(CPU, SETTINGS, width=2) as judge, ThreadPoolExecutor(1) as pool:
        judge.card(problem_of())
        bench = judge._bench
        assert bench is not None
        first = pool.submit(judge.evaluate, problem_of(), meek)
        while not judge._docket._heard:
            time.sleep(0.01)
        bench.broken = True
        assert judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT))).verdict is Verdict.CORRECT
        assert first.result().verdict is Verdict.CORRECT
        assert judge._bench is not bench


def test_a_reference_that_dies_when_it_is_timed_again_is_the_rigs_fault() -> None:
    with Judge(CPU, SETTINGS) as judge:
        judge.card(problem_of())
        assert judge._bench is not None
        judge._bench.reference.worker.end()
        with pytest.raises(EvaluatorError, match="the reference failed"):
            judge._bench.gauge_reference()


def test_a_closed_pool_says_so() -> None:
    pool = WorkerPool(CPU, DeviceGate(CPU))
    pool.close()
    with pytest.raises(EvaluatorError, match="closed"):
        pool.take()


def test_each_thread_gets_its_threads_back() -> None:
    """torch's number of threads is each thread's own, and was left at one by all who were not the last to leave."""
    quiet, together = QuietThreads(), threading.Barrier(2, timeout=20)
    left_first = threading.Event()

    def visit(first: bool) -> tuple[int, int]:
        with quiet(), quiet():
            together.wait()
            inside = torch.get_num_threads()
            if not first:
                assert left_first.wait(20)
        after = torch.get_num_threads()
        left_first.set()
        return inside, after

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(visit, (True, False))) == [(1, 2), (1, 2)]
    finally:
        torch.set_num_threads(before)


def test_memory_that_cannot_be_lent_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EvaluatorError, match="shared memory"):
        SharedMemory(CPU, 1 << 20)
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_lent_after_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that compiles for long, or in vain, needs none."""
    lent: list[bool] = []
    real = RemoteKernel.lend
    monkeypatch.setattr(RemoteKernel, "lend", lambda self: (lent.append(True), real(self))[1])
    with Judge(CPU, SETTINGS) as judge:
        judge.card(problem_of())
        before = len(lent)
        broken = judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT, first="1 / 0\n")))
        assert (broken.verdict, len(lent)) == (Verdict.BUILD_FAILED, before)
        assert judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT))).verdict is Verdict.CORRECT
        assert len(lent) > before


def test_only_who_is_let_in_has_trials_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not fit into memory they are computed again, on the device on which another may be timed."""
    held: list[str] = []
    real_trial = PreparedProblem.trial

    def trial(self: PreparedProblem, number: int) -> object:
        held.append(judge._court.gate._held)
        return real_trial(self, number)

    monkeypatch.setattr(PreparedProblem, "trial", trial)
    with Judge(CPU, SETTINGS.model_copy(update={"profile": True})) as judge:
        for body in (RIGHT, f"return 1.01 * ({RIGHT.removeprefix('return ')})"):
            judge.evaluate(problem_of(), Kernel.from_source(candidate(body)))
    assert len(held) > 10
    assert all(held), held


def test_a_spare_that_somebody_killed_is_passed_over() -> None:
    with WorkerPool(CPU, DeviceGate(CPU)) as pool:
        spare = pool._spares[0][0].result()
        spare.end()
        while spare.alive:
            time.sleep(0.01)
        worker = pool.take()
        assert worker is not spare
        assert worker.alive
        worker.kill()
        assert not worker.alive


def test_clearly_slow_is_half_of_the_reference_or_of_the_best_kernel() -> None:
    twice, level = [math.log(2.0)] * 3, [0.0] * 3
    assert pipeline._is_clearly_slow([math.log(0.4)] * 3, 0.0)
    assert not pipeline._is_clearly_slow(level, 0.0)
    assert not pipeline._is_clearly_slow(level, 1.9)
    assert pipeline._is_clearly_slow(level, 2.1)
    assert not pipeline._is_clearly_slow(twice, 3.9)
    assert not pipeline._is_clearly_slow([*level[:2], math.log(1.2)], 2.1), "not in each of the rounds"


def test_only_a_kernel_behind_the_best_in_every_round_is_timed_less() -> None:
    level = [math.log(1.0)] * 3
    assert pipeline._is_behind(level, 1.2)
    assert not pipeline._is_behind(level, 1.1)
    assert not pipeline._is_behind(level, 0.0), "nothing was seen here yet"
    assert not pipeline._is_behind([*level[:2], math.log(1.09)], 1.2), "not in each of the rounds"


def test_width_is_one_where_the_kernel_needs_all_cores() -> None:
    assert width_for(CPU) == 1
    assert width_for(CPU, 3) == 3


@pytest.mark.parametrize(("cores", "kept"), [(1, 1), (4, 2), (8, 3)])
def test_as_many_are_kept_as_are_taken_at_once_where_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, kept: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(WorkerPool, "_start", lambda _, number: SimpleNamespace(alive=True, kill=lambda: None))
    with WorkerPool(CPU, DeviceGate(CPU), spares=3) as pool:
        assert len(pool._spares[0]) == 1 + kept, "one for the reference"
        for _ in range(4):
            pool.take()
        assert len(pool._spares[0]) == kept
    with WorkerPool(CPU, DeviceGate(CPU), spares=3, connections=1) as pool:
        for _ in range(4):
            pool.take(one_stream=True)
            pool.take()
        assert (len(pool._spares[1]), len(pool._spares[0])) == (kept, 1), "few kernels use several streams"


def test_workers_are_handed_out_once() -> None:
    with WorkerPool(CPU, DeviceGate(CPU)) as pool, ThreadPoolExecutor(3) as threads:
        taken = list(threads.map(lambda _: pool.take(), range(3)))
        try:
            assert len({worker.pid for worker in taken}) == 3
            assert os.getpid() not in {worker.pid for worker in taken}
        finally:
            for worker in taken:
                worker.kill()


@pytest.mark.parametrize(("first", "one_stream"), [("", True), ("SIDE = torch.cuda.Stream\n\n\n", False)])
def test_kernels_of_several_streams_have_a_worker_of_all_connections(
    monkeypatch: pytest.MonkeyPatch, first: str, one_stream: bool
) -> None:
    taken: list[bool] = []
    take = WorkerPool.take

    def noted(self: WorkerPool, *, one_stream: bool = False) -> Worker:
        taken.append(one_stream)
        return take(self, one_stream=one_stream)

    monkeypatch.setattr(WorkerPool, "take", noted)
    with Judge(CPU, SETTINGS) as judge:
        judge.card(problem_of())
        assert taken == [False]  # the reference's
        found = judge.evaluate(problem_of(), Kernel.from_source(candidate("raise ValueError('no')", first=first)))
    assert found.verdict < Verdict.CORRECT
    assert taken == [False, one_stream]


def test_a_worker_without_a_gpu_has_the_drivers_number_of_connections() -> None:
    source = candidate("raise ValueError(os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS', 'it has none'))")
    with Judge(CPU, SETTINGS.model_copy(update={"connections": 3})) as judge:
        found = judge.evaluate(problem_of(), Kernel.from_source(source))
    assert "it has none" in found.message
