"""Several kernels in one judge at once: the same verdicts, one is timed at a time, a contest is held alone."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging import pipeline
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.judging.judge import Judge, width_for
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from tests.evaluators.judging.layer import PROBLEM, RIGHT, candidate, problem_of

CPU = find_device("cpu")
SETTINGS = EvaluationSettings(
    trials=3, warmup=0, rounds=3, calls_per_round=2, timing_seconds=0.2, build_seconds=60, import_seconds=10,
    run_seconds=3, total_seconds=60, profile=False, connections=3,
)  # fmt: skip
OTHER = PROBLEM.replace("torch.relu(x @ self.weight)", "torch.tanh(x @ self.weight)")
HONEST = Kernel.from_source(candidate(RIGHT))
#: Body -> verdict.
BODIES = {
    RIGHT: Verdict.CORRECT,
    "return (x @ self.weight).clamp_min(0)": Verdict.CORRECT,
    "return x @ self.weight": Verdict.WRONG,
    "raise ValueError('no')": Verdict.CRASHED,
    "raise SystemExit(3)": Verdict.CRASHED,
    "time.sleep(60)": Verdict.TIMED_OUT,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Judge]:
    with Judge(CPU, SETTINGS, width=2) as judge:
        yield judge


@pytest.fixture
def judge(shared: Judge) -> Judge:
    """The module's judge, with the problem set up."""
    shared.card(problem_of())
    return shared


def context_of(judge: Judge) -> ProblemContext:
    assert judge._problem is not None
    return judge._problem


def wait_for_an_evaluation(judge: Judge) -> None:
    while not judge._admission._slots:
        time.sleep(0.01)


@pytest.mark.slow
def test_side_by_side_is_as_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "disturbs", lambda *_: False)
    timed: list[tuple[float, float]] = []
    tried: list[tuple[float, float]] = []
    real_timed_call, real_trial_call = CandidateProcess.timed_call, CandidateProcess.trial_call
    timing = threading.Lock()

    def timed_call(self: CandidateProcess, inputs: object, **options: bool) -> object:
        assert timing.acquire(blocking=False), "two kernels were timed at once"
        started = time.monotonic()
        try:
            return real_timed_call(self, inputs, **options)  # type: ignore[arg-type]
        finally:
            timed.append((started, time.monotonic()))
            timing.release()

    def trial_call(self: CandidateProcess, inputs: object, **options: bool) -> object:
        started = time.monotonic()
        try:
            return real_trial_call(self, inputs, **options)  # type: ignore[arg-type]
        finally:
            tried.append((started, time.monotonic()))

    monkeypatch.setattr(CandidateProcess, "trial_call", trial_call)
    jobs = [
        (problem_of(), Kernel.from_source(candidate(body, first=f"# {number}\n")), expected)
        for number, (body, expected) in enumerate(BODIES.items())
    ]
    other = "return torch.tanh(x @ self.weight)"
    jobs += [
        (problem_of(OTHER), Kernel.from_source(candidate(other, first=f"# other {number}\n")), Verdict.CORRECT)
        for number in range(2)
    ]
    with Judge(CPU, SETTINGS, width=4) as judge, ThreadPoolExecutor(4) as pool:
        # Setting a problem up calls the reference through `timed_call`, too, without the device to itself.
        for problem in {problem.id: problem for problem, _, _ in jobs}.values():
            judge.card(problem)
        monkeypatch.setattr(CandidateProcess, "timed_call", timed_call)
        found: list[Evaluation] = list(pool.map(lambda job: judge.evaluate(job[0], job[1]), jobs))
    for (problem, kernel, expected), one in zip(jobs, found, strict=True):
        assert one.verdict is expected, one.message
        assert (one.kernel, one.problem) == (kernel.id, problem.id)
        assert one.execution.started_at > 0
        assert {"lint", "prepare", "worker", "build", "trials", "cleanup"} <= one.execution.phases.keys()
        assert sum(one.execution.phases.values()) <= one.execution.seconds + 0.01
    assert timed
    beside = [call for call in tried if any(call[0] < end and start < call[1] for start, end in timed)]
    assert not beside, "a kernel was in its trials while another was timed"


@pytest.mark.slow
def test_a_contest_waits_until_all_evaluations_are_through(judge: Judge) -> None:
    slow = Kernel.from_source(candidate(f"time.sleep(0.05)\n{RIGHT}"))
    ended: dict[str, float] = {}
    with ThreadPoolExecutor(1) as pool:
        evaluated = pool.submit(judge.evaluate, problem_of(), slow)
        evaluated.add_done_callback(lambda _: ended.setdefault("evaluate", time.monotonic()))
        wait_for_an_evaluation(judge)
        contest = judge.compete(problem_of(), [HONEST], rounds=3)
        ended["compete"] = time.monotonic()
        assert evaluated.result().verdict is Verdict.CORRECT
    assert ended["evaluate"] < ended["compete"]
    assert HONEST.id in contest.times


def test_a_kernel_that_found_no_memory_beside_others_is_evaluated_again_alone(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = Kernel.from_source(candidate("raise MemoryError('out of memory')"))
    modest = Kernel.from_source(candidate(f"time.sleep(0.1)\n{RIGHT}"))
    evaluated: list[tuple[str, bool]] = []
    real = pipeline.evaluate_in_process

    def counted(context: object, kernel: Kernel, *rest: object) -> Evaluation:
        evaluated.append((kernel.id, judge._admission._exclusive))
        return real(context, kernel, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("kbevolve.evaluators.judging.judge.evaluate_in_process", counted)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(judge.evaluate, problem_of(), modest)
        while not evaluated:
            time.sleep(0.01)
        found = judge.evaluate(problem_of(), greedy)
        assert first.result().verdict is Verdict.CORRECT
    assert found.verdict is Verdict.CRASHED
    assert [alone for kernel, alone in evaluated if kernel == greedy.id] == [False, True]
    assert not any(alone for kernel, alone in evaluated if kernel == modest.id), "it may be timed again in its place"


def test_where_the_judge_finds_no_memory_beside_others_the_kernel_is_evaluated_again_alone(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[bool] = []
    real = pipeline.evaluate_in_process

    def short_of_memory(*given: object) -> Evaluation:
        alone.append(judge._admission._exclusive)
        if not alone[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("kbevolve.evaluators.judging.judge.evaluate_in_process", short_of_memory)
    assert judge.evaluate(problem_of(), HONEST).verdict is Verdict.CORRECT
    assert alone[:2] == [False, True]
    assert all(alone[1:]), "a doubtful timing is repeated"


def test_a_reference_that_died_is_started_again(judge: Judge) -> None:
    dead = context_of(judge).reference.worker
    dead.end()
    assert judge.evaluate(problem_of(), HONEST).verdict is Verdict.CORRECT
    assert context_of(judge).reference.worker is not dead


def test_a_reference_that_dies_again_and_again_is_an_infrastructure_failure(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_call = CandidateProcess.timed_call

    def timed_call(self: CandidateProcess, inputs: object, **options: bool) -> object:
        if judge._problem is not None and self is judge._problem.reference:
            self.worker.end()
        return real_call(self, inputs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CandidateProcess, "timed_call", timed_call)
    with pytest.raises(EvaluatorError, match="the reference failed"):
        judge.evaluate(problem_of(), HONEST)


@pytest.mark.slow
def test_a_kernel_of_a_broken_problem_beside_others_is_evaluated_alone(judge: Judge) -> None:
    """The reference of an evaluation that still runs has died: neither the next kernel's fault nor a failed judge."""
    slow = Kernel.from_source(candidate(f"time.sleep(0.3)\n{RIGHT}"))
    with ThreadPoolExecutor(1) as pool:
        context = context_of(judge)
        first = pool.submit(judge.evaluate, problem_of(), slow)
        wait_for_an_evaluation(judge)
        context.broken = True
        assert judge.evaluate(problem_of(), HONEST).verdict is Verdict.CORRECT
        assert first.result().verdict is Verdict.CORRECT
        assert context_of(judge) is not context


def test_a_reference_that_dies_when_it_is_timed_again_is_an_infrastructure_failure(judge: Judge) -> None:
    context = context_of(judge)
    context.broken = True  # for the tests that follow
    context.reference.worker.end()
    with pytest.raises(EvaluatorError, match="the reference failed"):
        context.measure_reference()


@pytest.mark.slow
def test_memory_is_allocated_after_the_build(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that compiles for long, or does not compile, needs none."""
    allocated: list[bool] = []
    real = CandidateProcess.allocate
    monkeypatch.setattr(CandidateProcess, "allocate", lambda self: (allocated.append(True), real(self))[1])
    broken = judge.evaluate(problem_of(), Kernel.from_source(candidate(RIGHT, first="1 / 0\n")))
    assert (broken.verdict, len(allocated)) == (Verdict.BUILD_FAILED, 0)
    assert judge.evaluate(problem_of(), HONEST).verdict is Verdict.CORRECT
    assert allocated


@pytest.mark.slow
def test_trials_are_computed_only_while_the_device_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not fit into memory they are computed again, on the device on which another may be timed."""
    held: list[str] = []
    real_trial = PreparedProblem.trial

    def trial(self: PreparedProblem, number: int) -> object:
        held.append(profiling._context.gate._held)
        return real_trial(self, number)

    monkeypatch.setattr(PreparedProblem, "trial", trial)
    with Judge(CPU, SETTINGS.model_copy(update={"profile": True})) as profiling:
        for body in (RIGHT, f"return 1.01 * ({RIGHT.removeprefix('return ')})"):
            profiling.evaluate(problem_of(), Kernel.from_source(candidate(body)))
    assert len(held) >= 2 * SETTINGS.trials
    assert all(held), held


def test_width_is_one_where_the_kernel_needs_all_cores() -> None:
    assert width_for(CPU) == 1
    assert width_for(CPU, 3) == 3


@pytest.mark.parametrize(("first", "one_stream"), [("", True), ("SIDE = torch.cuda.Stream\n\n\n", False)])
@pytest.mark.slow
def test_kernels_of_several_streams_and_the_reference_have_a_worker_of_all_connections(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, first: str, one_stream: bool
) -> None:
    taken: list[bool] = []
    take = WorkerPool.take

    def noted(self: WorkerPool, *, one_stream: bool = False) -> Worker:
        taken.append(one_stream)
        return take(self, one_stream=one_stream)

    monkeypatch.setattr(WorkerPool, "take", noted)
    context_of(judge).start_reference()[0].close()
    assert taken == [False]
    found = judge.evaluate(problem_of(), Kernel.from_source(candidate("raise ValueError('no')", first=first)))
    assert found.verdict < Verdict.CORRECT
    assert taken == [False, one_stream]


def test_a_worker_without_a_gpu_has_the_drivers_number_of_connections(judge: Judge) -> None:
    source = candidate("raise ValueError(os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS', 'it has none'))")
    assert "it has none" in judge.evaluate(problem_of(), Kernel.from_source(source)).message


@pytest.mark.slow
def test_a_contest_has_a_fresh_reference_and_no_other(judge: Judge) -> None:
    """Memory that suffices for the evaluation of a large kernel suffices for its contest."""
    before = context_of(judge).reference
    contest = judge.compete(problem_of(), [HONEST], rounds=3)
    after = context_of(judge).reference
    assert HONEST.id in contest.times
    assert (before.worker.alive, after.worker.alive) == (False, True)
    assert judge.evaluate(problem_of(), HONEST).verdict is Verdict.CORRECT
    assert context_of(judge).reference is after
