"""Problems as large as KernelBench's largest on a GPU of 140 GB, and one that no GPU can hold."""

from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]

GIB = 1 << 30
SETTINGS = EvaluationSettings(rounds=3, least_rounds=3, calls_per_round=2, timing_seconds=0.5, profile=False)


def problem_of(forward: str, rows: int) -> Problem:
    """One input of 4096 columns in fp32: 2^16 rows are a GiB."""
    text = f"""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.rand({rows}, 4096)]


def get_init_inputs():
    return []
"""
    return parse_problem(text, name="tests/memory", path=Path("memory.py"))


def judged(judge: Judge, problem: Problem) -> Evaluation:
    return judge.evaluate(problem, Kernel.from_source(as_model_new(problem.source_for("cuda"))))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory < 130 * GIB,
    reason="needs a GPU of 140 GB",
)
@pytest.mark.parametrize("forward", ["torch.relu(x)", "x / torch.norm(x)"])
def test_an_input_of_6_gib_is_judged(forward: str) -> None:
    with Judge(find_device("cuda"), SETTINGS) as judge:
        torch.cuda.reset_peak_memory_stats()
        found = judged(judge, problem_of(forward, 6 << 16))
        assert found.verdict is Verdict.CORRECT, found.message
        # Eleven inputs, and what it shares with workers.
        assert torch.cuda.max_memory_allocated() <= 68 * GIB


def test_after_a_problem_that_does_not_fit_the_memory_is_free_again() -> None:
    with Judge(find_device("cuda"), SETTINGS) as judge:
        assert judged(judge, problem_of("torch.relu(x)", 256)).verdict is Verdict.CORRECT
        free, total = torch.cuda.mem_get_info()
        with pytest.raises(EvaluatorError, match="the judge has too little memory on cuda") as caught:
            judged(judge, problem_of("torch.relu(x)", int(0.45 * total / GIB * (1 << 16))))
        assert "\n" not in str(caught.value)
        assert torch.cuda.mem_get_info()[0] >= free - GIB
        assert judged(judge, problem_of("torch.relu(x)", 512)).verdict is Verdict.CORRECT
