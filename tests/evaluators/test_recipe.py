"""KernelBench's recipe: its verdicts on good and bad kernels, and that they are those of an independent program."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.throughput import theirs
from benchmarks.throughput.child import Child, Fate, Kind
from benchmarks.throughput.mix import small_children
from benchmarks.throughput.problems import problems
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError, SettingsError
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import KernelBenchSettings, Precision
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.recipe import Outcome, RecipeVerdict, judge_by_recipe, timing_method

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)
    def forward(self, x):
        for _ in range(12):
            x = torch.tanh(self.layer(x))
        return x
def get_inputs():
    return [torch.randn(256, 256)]
def get_init_inputs():
    return [256]
"""
MODEL = """
import os
import torch
from torch import nn
class ModelNew(nn.Module):
    known = {}
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)
    def compute(self, x):
        for _ in range(12):
            x = torch.tanh(self.layer(x))
        return x
    def forward(self, x):
"""
#: Body of forward() -> what the recipe says.
BODIES = {
    "return self.compute(x)": Outcome.CORRECT,
    "return self.compute(x) + 5e-5": Outcome.CORRECT,  # inside the absolute tolerance
    "return self.compute(x) + 1e-3": Outcome.INCORRECT,
    "return self.compute(x)[:5]": Outcome.INCORRECT,
    "return torch.full_like(x, float('nan'))": Outcome.INCORRECT,
    "return self.compute(x).double()": Outcome.FAILED,  # allclose wants one dtype
    "return None": Outcome.FAILED,
    "raise ValueError('no such size')": Outcome.FAILED,
    "os._exit(3)": Outcome.FAILED,
    # Answers of inputs that it has seen: right in the trials, and timed on one input, so the recipe believes it.
    "return self.remembered(x)": Outcome.CORRECT,
    # Answers by shape alone.
    "return self.known.setdefault(x.shape, self.compute(x))": Outcome.INCORRECT,
}
REMEMBERED = """
    def remembered(self, x):
        key = x[0, 0].item()
        if key not in self.known:
            self.known[key] = self.compute(x)
        return self.known[key]
"""
FEW = KernelBenchSettings(timed_calls=5)


@pytest.fixture(scope="module")
def device() -> Device:
    return find_device("cpu")


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return parse_problem(PROBLEM, name="problem", path=tmp_path / "problem.py")


def source(body: str) -> str:
    return f"{MODEL}        {body}\n{REMEMBERED}"


def judged(
    problem: Problem, body: str, device: Device, precision: Precision = "fp32", settings: KernelBenchSettings = FEW
) -> RecipeVerdict:
    return judge_by_recipe(problem, Kernel.from_source(source(body)), device, precision, settings)


#: Each takes two seconds: one for each outcome is among the quick tests.
QUICK = ("return self.compute(x)", "return self.compute(x) + 1e-3", "return None")


@pytest.mark.parametrize(
    "body", [pytest.param(body, marks=[] if body in QUICK else pytest.mark.slow) for body in BODIES]
)
def test_it_says_what_kernelbench_says(body: str, problem: Problem, device: Device) -> None:
    found = judged(problem, body, device)
    assert found.outcome is BODIES[body], found
    assert (found.speedup is not None) == (found.outcome is Outcome.CORRECT)
    assert bool(found.message) == (found.outcome is not Outcome.CORRECT)
    assert found.compiled == ("_exit" not in body), "its process gave no verdict"


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_an_independent_program_says_the_same(body: str, problem: Problem, device: Device) -> None:
    child = Child(
        name="child",
        problem=problem.name,
        kind=Kind.TORCH,
        fate=Fate.CORRECT,
        summary=body,
        verdict=Verdict.CORRECT,
        source=source(body),
    )
    assert judged(problem, body, device).outcome == theirs.evaluate(child, problem, device, seconds=60)["outcome"]


@pytest.mark.slow
@pytest.mark.parametrize("child", small_children(), ids=lambda child: child.name)
def test_it_agrees_on_the_children_of_the_benchmark(child: Child, device: Device) -> None:
    problem = problems(small=True)[child.problem]
    found = judge_by_recipe(problem, child.kernel, device, "fp32", FEW)
    assert found.outcome == theirs.evaluate(child, problem, device, seconds=60)["outcome"], found


@pytest.mark.slow
def test_the_times_are_the_means_of_both(problem: Problem, device: Device) -> None:
    found = judged(problem, "self.compute(x); return self.compute(x)", device)
    assert found.kernel_ms is not None
    assert found.reference_ms is not None
    assert found.kernel_ms["calls"] == found.reference_ms["calls"] == 5
    assert found.kernel_ms["min"] <= found.kernel_ms["mean"] <= found.kernel_ms["max"]
    assert found.speedup == found.reference_ms["mean"] / found.kernel_ms["mean"]
    assert found.timing == "host_time"


def test_a_remembered_answer_is_as_fast_as_kernelbench_warns_of(problem: Problem, device: Device) -> None:
    found = judged(problem, "return self.remembered(x)", device)
    assert found.kernel_ms is not None
    assert found.reference_ms is not None
    ratio = found.reference_ms["min"] / found.kernel_ms["min"]  # one late call on a busy machine makes a mean large
    assert replace(found, speedup=ratio).is_excessive


@pytest.mark.slow
def test_fewer_trials_and_no_times(problem: Problem, device: Device) -> None:
    settings = KernelBenchSettings(trials=1, performance=False)
    found = judged(problem, "return self.compute(x) + 1.0", device, settings=settings)
    assert found.message.startswith("1 of 1 trials differ, by 1 at most; allowed: 0.0001")
    found = judged(problem, "return self.compute(x)", device, settings=settings)
    assert (found.outcome, found.timing, found.speedup) == (Outcome.CORRECT, None, None)


@pytest.mark.slow
def test_the_tolerance_follows_the_precision(problem: Problem, device: Device) -> None:
    body = "return self.compute(x) + 8e-3"
    assert judged(problem, body, device).outcome is Outcome.INCORRECT
    assert judged(problem, body, device, "bf16").outcome is Outcome.CORRECT


@pytest.mark.slow
def test_what_does_not_compile_or_cannot_be_built(problem: Problem, device: Device) -> None:
    found = [
        judge_by_recipe(problem, Kernel.from_source(text), device, "fp32", FEW)
        for text in (
            "import torch\nraise RuntimeError('nvcc failed')",
            "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, size): raise RuntimeError('no')",
        )
    ]
    assert [(one.outcome, one.compiled) for one in found] == [(Outcome.FAILED, False), (Outcome.FAILED, True)]


def test_a_kernel_that_hangs_is_stopped(problem: Problem, device: Device) -> None:
    found = judged(problem, "while True: pass", device, settings=KernelBenchSettings(seconds=0.5))
    assert (found.outcome, found.compiled) == (Outcome.FAILED, False)
    assert "stopped after" in found.message


def test_a_reference_that_fails_is_no_fault_of_the_kernel(tmp_path: Path, device: Device) -> None:
    text = PROBLEM.replace("super().__init__()", "raise OSError('no weights')")
    broken = parse_problem(text, name="broken", path=tmp_path / "broken.py")
    with pytest.raises(EvaluatorError, match="the reference fails in KernelBench's recipe: OSError: no weights"):
        judged(broken, "return x", device)


@pytest.mark.slow
def test_a_reference_that_wants_integers_fails_as_there_and_the_message_says_so(tmp_path: Path, device: Device) -> None:
    text = PROBLEM.replace("torch.randn(256, 256)", "torch.zeros(4, dtype=torch.int64)")
    text = text.replace("def forward(self, x):", "def forward(self, x):\n        return torch.eye(4)[x]")
    found = judged(parse_problem(text, name="indices", path=tmp_path / "indices.py"), "return x", device)
    assert (found.outcome, found.compiled) == (Outcome.FAILED, True)
    assert "the reference itself fails: IndexError" in found.message


def test_what_the_device_or_kernelbench_has_not_is_an_error(device: Device) -> None:
    with pytest.raises(SettingsError, match="needs a CUDA device"):
        timing_method(KernelBenchSettings(timing="do_bench"), device, "fp32")
    with pytest.raises(SettingsError, match="no precision tf32"):
        timing_method(FEW, device, "tf32")
