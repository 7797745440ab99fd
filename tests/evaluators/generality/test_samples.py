"""Which of PyTorch's samples suit a problem, and that a kernel is judged on them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.generality.opinfo import draw_sample
from kbevolve.evaluators.generality.samples import SampleSelection, select_samples

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self{takes}):
        super().__init__()
        {keeps}

    def forward(self, x):
        return {returns}


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return [{gives}]
"""
KERNEL = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {returns}
"""

pytestmark = pytest.mark.slow  # torch's data base of operators takes seconds to import


def text(returns: str, *, takes: str = "", keeps: str = "pass", gives: str = "") -> str:
    return PROBLEM.format(returns=returns, takes=takes, keeps=keeps, gives=gives)


def selected(source: str) -> SampleSelection:
    return select_samples(parse_problem(source, name="one", path=Path("one.py")), "cpu", "fp32")


def test_samples_suit_that_ask_for_the_same_call() -> None:
    fixed = selected(text("torch.softmax(x, dim=1)"))
    assert fixed.operator == "aten.softmax.int"
    assert {one.words for one in fixed.variants} == {"(5, 5)"}
    assert "dim is not 1, and Model's constructor does not take it" in fixed.skipped
    chosen = selected(text("torch.softmax(x, dim=self.dim)", takes=", dim", keeps="self.dim = dim", gives="1"))
    assert len(chosen.variants) > len(fixed.variants)
    assert any("dim=0" in one.words for one in chosen.variants)
    compile(chosen.variants[0].problem.source, "problem.py", "exec")


def test_weights_have_the_samples_shapes() -> None:
    found = selected(text("self.norm(x)", takes=", size", keeps="self.norm = nn.LayerNorm(size)", gives="32"))
    assert found.operator == "aten.layer_norm.default"
    assert found.skipped


@pytest.mark.parametrize(
    ("returns", "complaint"),
    [("torch.relu(x) * 2", r"is not one operator, but 2 \(aten.relu.default, aten.mul.Tensor\)"), ("x", "but 0")],
)
def test_a_problem_of_several_operators_has_no_samples(returns: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        selected(text(returns))


def test_a_sample_is_drawn_anew_in_the_same_shapes() -> None:
    (first,), (second,) = (draw_sample("nn.functional.gelu", "", 0, "float32", [0]) for _ in range(2))
    assert first.shape == second.shape
    assert not torch.equal(first, second)


def test_flags_can_be_set_after_the_import() -> None:
    draw_sample("nn.functional.gelu", "", 0, "float32", [0])
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = not before
    torch.backends.cudnn.allow_tf32 = before


def test_a_kernel_is_judged_on_them(kbevolve: Any, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(text("torch.nn.functional.gelu(x)"))
    (tmp_path / "right.py").write_text(KERNEL.format(returns="0.5 * x * (1 + torch.erf(x * 0.5**0.5))"))
    (tmp_path / "wrong.py").write_text(KERNEL.format(returns="0.5 * x.view(64, 32) * (1 + torch.erf(x * 0.5**0.5))"))
    task = ("--problem", tmp_path / "problem.py", "--device", "cpu", "--opinfo", "--check")
    right = kbevolve("evaluate", tmp_path / "right.py", *task, "--json")
    assert right.code == 0, right.err
    found = json.loads(right.out)
    assert found["correct"] == found["judged"] == len(found["samples"]) > 1
    wrong = kbevolve("evaluate", tmp_path / "wrong.py", *task)
    assert wrong.code == 1
    assert f"right on 0 of {found['judged']} samples" in wrong.out
    both = kbevolve("evaluate", tmp_path / "right.py", *task, "--shapes")
    assert both.code == 2
    assert "give one of them" in both.err
