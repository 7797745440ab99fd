"""What every `Evaluator` must do: the judge, the fleet, and the double of the search's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import Settings, WorkSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evaluators.fleet.fleet import local_fleet
from kbevolve.evaluators.judging.judge import Judge
from tests.evaluators.simulated import NAME as SIMULATED
from tests.evolve.doubles import KnownEvaluator

PROBLEM = '''"""Twice x."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
'''

RIGHT = """import torch

WRONG = 0  # tune: 0, 1


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * (3 if WRONG else 2)
"""


@pytest.fixture(scope="module", params=["judge", "double", "fleet"])
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    if request.param == "double":
        yield KnownEvaluator()
        return
    settings = Settings.load(base=Settings.preset("cpu"), preset="smoke").evaluation
    if request.param == "fleet":
        with local_fleet((find_device("cpu"),), settings, WorkSettings(), judge=SIMULATED) as fleet:
            yield fleet
        return
    with Judge(find_device("cpu"), settings) as judge:
        yield judge


def problem() -> Problem:
    return parse_problem(PROBLEM, name="twice.py", path=Path("twice.py"))


def check(evaluation: Evaluation, kernel: Kernel) -> None:
    assert (evaluation.kernel, evaluation.problem) == (kernel.id, problem().id)
    assert evaluation.precision == "fp32"
    assert evaluation.device
    numbers = (evaluation.timing.time_ms, evaluation.timing.reference_ms, evaluation.timing.speedup)
    if evaluation.verdict is Verdict.CORRECT:
        assert all(number is not None and number > 0 for number in numbers)
        assert evaluation.timing.speedup_low is not None
        assert evaluation.timing.speedup_high is not None
        assert evaluation.timing.speedup_low <= (evaluation.timing.speedup or 0) <= evaluation.timing.speedup_high
    else:
        assert numbers == (None, None, None)
        assert evaluation.message, "a proposer must learn what was wrong"
        assert evaluation.blocks == ()


def test_a_correct_kernel_has_times_and_an_interval(evaluator: Evaluator) -> None:
    kernel = Kernel.from_source(RIGHT)
    evaluation = evaluator.evaluate(problem(), kernel)
    assert evaluation.verdict is Verdict.CORRECT
    check(evaluation, kernel)


def test_a_wrong_kernel_is_a_result_with_a_message(evaluator: Evaluator) -> None:
    kernel = Kernel.from_source(RIGHT.replace("WRONG = 0", "WRONG = 1"))
    evaluation = evaluator.evaluate(problem(), kernel)
    assert evaluation.verdict is Verdict.WRONG
    check(evaluation, kernel)
