"""How much memory the judge's own process takes, and that it gives all of it back when it is too little."""

import weakref
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import as_model_new
from kbevolve.evaluators.analysis import inspection
from kbevolve.evaluators.candidate import trials
from kbevolve.evaluators.candidate.output_check import OutputChecker
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.correctness import kept, prepared
from kbevolve.evaluators.judging import head_to_head, paired_timing
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.judging.pipeline import rejected
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.timing.contest import Contest
from tests.evaluators.judging.layer import problem_of
from tests.evaluators.live_bytes import LiveBytes

COLUMNS = 4096
#: Bytes of an input, or of an output, for each row.
ROW_BYTES = 4 * COLUMNS
#: The most that the judge's process may hold at once, in inputs: its own tensors, and what it shares with two workers,
#: inputs and outputs each.
LARGEST = 12.5
#: As PyTorch says it.
NO_MEMORY = (
    "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.70 GiB is "
    "free. Including non-PyTorch memory, this process has 134.89 GiB memory in use."
)


def large(forward: str, *, rows: int = 32) -> Problem:
    """An elementwise problem, or nearly, whose output is as large as its input; a problem of its own for each text."""
    return problem_of(f"""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.rand({rows}, {COLUMNS})]


def get_init_inputs():
    return []
""")


def kernel_for(problem: Problem) -> Kernel:
    return Kernel.from_source(as_model_new(problem.source_for("cpu")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "forward", ["torch.relu(x)", "x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)", "x / torch.norm(x)"]
)
def test_the_judge_holds_twelve_times_a_large_input_at_most(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, forward: str
) -> None:
    monkeypatch.setattr(kept, "_SHARE", 0.0)
    # Nothing else is large: the rates of the device are measured with arrays of their own.
    judge.card(problem_of())
    problem = large(forward, rows=256)
    with LiveBytes() as live:
        found = judge.evaluate(problem, kernel_for(problem))
    assert found.verdict is Verdict.CORRECT, found.message
    assert live.peak <= LARGEST * 256 * ROW_BYTES


@pytest.mark.slow
@pytest.mark.usefixtures("believed_clocks")
@pytest.mark.parametrize(("first", "early"), [("", 0), ("# triton\n", 1)])
def test_without_room_a_kernel_compiles_before_its_trials_and_each_trial_waits_for_room(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, first: str, early: int
) -> None:
    monkeypatch.setattr(kept, "_SHARE", 0.0)
    problem = large(f"torch.relu(x) + {early}.0")
    judge.card(problem)
    assert judge._problem is not None
    room: Any = judge._problem.prepared.kept.room_for_one
    held: list[bool] = []
    real = CandidateProcess.trial_call

    def noted(self: CandidateProcess, *given: Any, **options: Any) -> Any:
        held.append(room.locked())
        return real(self, *given, **options)

    monkeypatch.setattr(CandidateProcess, "trial_call", noted)
    kernel = Kernel.from_source(as_model_new(problem.source_for("cpu")) + first)
    assert judge.evaluate(problem, kernel).verdict is Verdict.CORRECT
    assert held == [False] * early + [True] * judge._problem.prepared.trials
    assert not room.locked()


def test_trials_are_kept_only_where_workers_and_a_truth_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "free_bytes", lambda device: 140 << 30)
    device: Any = None

    def room(gib: float) -> float:
        """For an elementwise problem of fp32 with one input of so many GiB."""
        size = int(gib * 2**30)
        return kept.room_for_trials(device, worker_bytes=5 * size, truth_bytes=16 * size) / 2**30

    assert room(0.5) == pytest.approx(140 * 2 / 3)
    assert room(2) == pytest.approx(140 - 2.5 - (4 * 5 + 16) * 2)
    assert room(4) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(prepared, "scale_of", id="preparation"),
        pytest.param(inspection, "count_operations", id="card"),
        pytest.param(trials, "deviation", id="trials"),
        pytest.param(OutputChecker, "sketch", id="timing"),
    ],
)
def test_a_judge_without_memory_says_so_and_releases_all_of_it(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        own: list[object] = [torch.ones(32, COLUMNS)]
        own.append(own)
        raise torch.OutOfMemoryError(NO_MEMORY)

    problem = large(f"torch.relu(x) + {len(name)}.0")
    with LiveBytes() as live:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails)
            with pytest.raises(EvaluatorError, match=r"6\.00 GiB more were needed, 3\.70 GiB were free; ") as caught:
                judge.evaluate(problem, kernel_for(problem))
            assert "\n" not in str(caught.value)
            assert live.peak >= 3 * 32 * ROW_BYTES
            assert live.now == 0, "while the error is still held"
        assert judge.evaluate(problem, kernel_for(problem)).verdict is Verdict.CORRECT


@pytest.mark.slow
def test_the_memory_of_one_problem_is_free_before_the_next_is_set_up(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.card(large("torch.relu(x)"))
    assert judge._problem is not None
    before = weakref.ref(judge._problem.prepared)
    alive: list[bool] = []
    real = prepared.PreparedProblem.__init__

    def watched(*given: Any) -> None:
        alive.append(before() is not None)
        real(*given)

    monkeypatch.setattr(prepared.PreparedProblem, "__init__", watched)
    judge.card(large("torch.relu(-x)"))
    assert alive == [False]


def copies(problem: Problem, count: int) -> list[Kernel]:
    source = as_model_new(problem.source_for("cpu"))
    return [Kernel.from_source(f"{source}\nCOPY = {number}\n") for number in range(count)]


@pytest.mark.slow
def test_a_contest_of_more_kernels_than_fit_is_held_without_the_last(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[list[str]] = []

    def run_contest(context: object, kernels: list[Kernel], **_: object) -> Contest:
        held.append([kernel.id for kernel in kernels])
        if len(kernels) > 2:
            raise torch.OutOfMemoryError(NO_MEMORY)
        return Contest(reference=(), times={}, failed={}, tie=0.0)

    monkeypatch.setattr("kbevolve.evaluators.judging.judge.run_contest", run_contest)
    problem = large("torch.relu(x)")
    kernels = copies(problem, 5)
    judge.compete(problem, kernels, rounds=3)
    names = [kernel.id for kernel in kernels]
    assert held == [names, names[:3], names[:2]]


@pytest.mark.slow
def test_a_contest_in_which_the_reference_finds_no_memory_is_held_with_fewer_kernels(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = paired_timing.time_round

    def time_round(kernels: dict[str, CandidateProcess], *given: Any, **named: Any) -> Any:
        if len(kernels) > 2:
            raise Rejection(Verdict.CRASHED, NO_MEMORY, culprit=paired_timing.REFERENCE)
        return real(kernels, *given, **named)

    monkeypatch.setattr(paired_timing, "time_round", time_round)
    problem = large("torch.relu(x)")
    one, other = copies(problem, 2)
    assert set(judge.compete(problem, [one, other], rounds=3).times) == {one.id}


@pytest.mark.slow
def test_memory_that_others_in_a_contest_use_is_no_fault_of_a_kernel(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = large("torch.relu(x)")
    one, other = copies(problem, 2)
    real = head_to_head.check_contestant

    def check(*given: Any) -> Any:
        found, ms = real(*given)
        return (rejected(found, Rejection(Verdict.CRASHED, NO_MEMORY)), ms) if given[-1] is other else (found, ms)

    monkeypatch.setattr(head_to_head, "check_contestant", check)
    contest = judge.compete(problem, [one, other], rounds=3)
    assert (set(contest.times), set(contest.failed)) == ({one.id}, set())
    assert other.id in judge.compete(problem, [other], rounds=3).failed, "alone it is"
