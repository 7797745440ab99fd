"""Convolutions so small that each is one launch, on a device of sm_90."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.gpu.speedups import speedups
from tests.gpu.test_gathered_convolution_cuda import (
    CONVOLUTIONS,
    Options,
    Shape,
    assert_accurate,
    assert_not_finite_is_taken_over,
)
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
SETTINGS: dict[str, dict[str, str]] = {
    "declared": {},
    "small tiles": {"SMALL_F": "32", "SMALL_STAGES": "4"},
    "wide tiles": {"SMALL_F": "128"},
    "long tiles": {"SMALL_P": "128", "SMALL_STAGES": "2"},
    "one group": {"SMALL_GROUPS": "1"},
}
#: Input, filters, and what differs from a step of 1 without padding: those of few channels, and of GoogleNet.
ALL = [
    *(one for one in CONVOLUTIONS if math.prod(one[1][2:]) < 32),
    ((10, 192, 28, 28), (96, 192, 1, 1), {}),
    ((10, 96, 28, 28), (128, 96, 3, 3), {"padding": (1, 1)}),
    ((10, 832, 7, 7), (384, 832, 1, 1), {}),
    ((1, 17, 5, 5), (2, 17, 5, 5), {}),
    ((3, 300, 9, 8), (40, 300, 1, 1), {}),
]


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    text = "\n\n".join(map(template, ("imports", "no_epilogue", "small_convolution")))
    return imported(with_values(text, request.param), tmp_path, "small")


def convolved(module: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, asked: Options) -> Any:
    none = (0,) * (x.dim() - 2)
    assert module.small_fits(x, weight, False, 1)
    return module.small_convolution(x, weight, **asked, transposed=False, output_padding=none, groups=1, bias=bias)


@pytest.mark.parametrize(("inputs", "filters", "options"), ALL)
def test_it_is_as_accurate_as_fp32(small: Any, inputs: Shape, filters: Shape, options: Options) -> None:
    # Of the last one two results are compared, whose errors no others average.
    assert_accurate(partial(convolved, small), inputs, filters, options, 8e-7 if filters[0] == 2 else 4e-7)


def test_it_takes_over_what_is_not_finite_and_huge(small: Any) -> None:
    assert_not_finite_is_taken_over(partial(convolved, small), 1e-5)


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(96, 128, 3, padding=1), nn.Conv2d(128, 64, 1)
        self.norm = nn.BatchNorm2d(128)

    def forward(self, x):
        return torch.sigmoid(self.second(torch.relu(self.norm(self.first(x)))))


def get_inputs():
    return [torch.randn(10, 96, 28, 28)]


def get_init_inputs():
    return []
"""


def test_a_kernel_with_it_is_right_and_faster_than_with_pairs(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain = process.source()
        texts = [process.for_templates() or plain, process.fused()]
    sources = [with_split_products(text or "") or "" for text in texts]
    chosen = [with_values(one, {"PRODUCT_0": n, "PRODUCT_1": n}) for one in sources for n in "21"]
    small, pairs, fused, fused_pairs = speedups(problem, chosen, tmp_path)
    print("in one launch and on pairs, then the same with what follows, times eager:", small, pairs, fused, fused_pairs)
    assert small > pairs
    assert fused > fused_pairs
