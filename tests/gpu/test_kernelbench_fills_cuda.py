"""Problems of KernelBench that its own tolerance accepts without any work: here each of these answers is wrong.

Needs a checkout, named by the variable KERNELBENCH (`kbevolve problems fetch kernelbench` makes one).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.references import SETTINGS
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge

CHECKOUT = Path(os.environ.get("KERNELBENCH") or "no checkout")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(not CHECKOUT.is_dir(), reason="KERNELBENCH names no checkout of KernelBench"),
]

#: A tiny answer, dead ones, and networks in which the signal fades.
PROBLEMS = ("1/23", "2/9", "2/23", "2/36", "2/65", "3/3", "3/11", "3/18", "3/19", "3/22", "3/45")
#: Constant for all weights and inputs.
CONSTANT = ("2/80", "2/83", "3/28")

_KERNEL = """{source}


class ModelNew(Model):
    def forward(self, *inputs):
        right = super().forward
        {body}
"""
#: Bodies of forward; `right` is the reference's.
FILLS = {
    "zeros": "return torch.zeros_like(right(*inputs))",
    "a constant": "answer = right(*inputs); return torch.full_like(answer, float(answer[:1].median()))",
    "the first answer": "self.kept = right(*inputs) if getattr(self, 'kept', None) is None else self.kept; "
    "return self.kept.clone()",
    "another input's answer": "return right(*[torch.rand_like(one) for one in inputs])",
    "the answer of one input": "return right(*[torch.full_like(one, 0.5) for one in inputs])",
    "the answer at the same address": "self.seen = seen = getattr(self, 'seen', {}); "
    "return seen.setdefault(inputs[0].data_ptr(), right(*inputs)).clone()",
    "other weights' answer": "[one.data.copy_(one.data.flatten().flip(0).view_as(one)) for one in self.parameters()]; "
    "return right(*inputs)",
}


def kernel_of(problem: Problem, device_type: str, body: str) -> Kernel:
    """A kernel that may compute the right answer, or return another one."""
    return Kernel.from_source(_KERNEL.format(source=problem.source_for(device_type), body=body))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(find_device("cuda"), SETTINGS) as made:
        yield made


def judged(judge: Judge, number: str, body: str) -> Evaluation:
    problem = find_problem(f"kernelbench:{number}", kernelbench=CHECKOUT)
    return judge.evaluate(problem, kernel_of(problem, "cuda", body))


@pytest.mark.parametrize("number", PROBLEMS)
def test_the_right_answer_is_correct_and_fills_are_wrong(judge: Judge, number: str) -> None:
    found = judged(judge, number, "return right(*inputs)")
    assert found.verdict is Verdict.CORRECT, found.message
    has_weights = "scaled-weights" in found.tags or number.startswith("3/")
    for fill, body in FILLS.items():
        if fill == "other weights' answer" and not has_weights:
            continue
        found = judged(judge, number, body)
        assert found.verdict is Verdict.WRONG, f"{fill}: {found.verdict.name} {found.message}"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's, about 3/28's own options
@pytest.mark.parametrize("number", CONSTANT)
def test_a_function_that_is_constant_for_all_weights_is_refused(judge: Judge, number: str) -> None:
    found = judged(judge, number, "return right(*inputs)")
    assert found.verdict is Verdict.REFUSED
    assert "degenerate" in found.message
