"""Convolutions of few channels, whose numbers are read where they lie, on a device of sm_90."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.gpu.speedups import speedups
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
SETTINGS: list[dict[str, str]] = [
    {},
    {"STAGED_CHUNK": "3", "STAGED_TURNS": "0"},
    {"STAGED_FP8": "1"},
    {"STAGED": "0"},
    {"STAGED": "0", "GATHER_N": "16", "GATHER_K": "16", "GATHER_WARPS": "4", "GATHER_EACH": "4"},
    {"STAGED": "0", "GATHER_N": "32", "GATHER_K": "64", "GATHER_EACH": "1"},
]
NAMES = ["staged", "staged without turns", "staged in fp8", "gathered", "small", "long"]
Shape = tuple[int, ...]
Options = dict[str, tuple[int, ...]]
Convolve = Callable[[torch.Tensor, torch.Tensor, Any, Options], torch.Tensor]
#: Input, filters, and what differs from a step of 1 without padding.
CONVOLUTIONS: list[tuple[Shape, Shape, Options]] = [
    ((2, 5, 9, 11), (7, 5, 3, 3), {"padding": (1, 1)}),
    ((2, 3, 223, 221), (96, 3, 11, 11), {"stride": (4, 4), "padding": (2, 2)}),
    ((3, 3, 64, 66), (40, 3, 8, 8), {"stride": (8, 8)}),
    ((2, 8, 33, 32), (70, 8, 3, 2), {"dilation": (2, 3), "padding": (2, 0)}),
    ((3, 4, 400), (128, 4, 5), {"stride": (2,), "padding": (1,)}),
    ((1, 4, 16, 17, 18), (5, 4, 3, 2, 3), {"stride": (2, 1, 1), "padding": (1, 0, 1)}),
    ((4, 3, 12, 20, 20), (16, 3, 4, 4, 4), {}),
    ((3, 1, 30, 31), (33, 1, 1, 1), {}),
    ((5, 3, 70, 75), (200, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3)}),
    ((2, 6, 40, 300), (24, 6, 2, 5), {"stride": (3, 3), "padding": (0, 4)}),
    ((2, 2, 9, 40, 41), (64, 2, 3, 5, 3), {"stride": (2, 2, 2), "padding": (1, 2, 0)}),
]


@pytest.fixture(params=SETTINGS, ids=NAMES)
def gathered(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    files = ("imports", "no_epilogue", "cuda_library", "cuda_convolution", "staged_convolution", "gathered_convolution")
    text = "\n\n".join(map(template, files))
    return imported(with_values(text, request.param), tmp_path, "gathered")


def convolved(module: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, asked: Options) -> Any:
    none = (0,) * (x.dim() - 2)
    assert module.gather_fits(x, weight, False, 1)
    return module.gathered_convolution(x, weight, **asked, transposed=False, output_padding=none, groups=1, bias=bias)


def assert_accurate(convolve: Convolve, inputs: Shape, filters: Shape, options: Options, limit: float) -> None:
    """Its relative error is below the limit for inputs of three sizes; `options` as in `CONVOLUTIONS`."""
    torch.manual_seed(0)
    dims = len(inputs) - 2
    asked = {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims} | options
    for size in (1.0, 2.0**-40, 2.0**60):
        x, weight, bias = (torch.randn(shape, device="cuda") for shape in (inputs, filters, filters[:1]))
        x, bias = x * size, bias * size
        found = convolve(x, weight, bias, asked)
        positions = (asked["stride"], asked["padding"], asked["dilation"], False, (0,) * dims, 1)
        truth = torch.convolution(x.double(), weight.double(), bias.double(), *positions)
        assert found.shape == truth.shape
        assert (found - truth).norm() < limit * truth.norm(), size


def assert_not_finite_is_taken_over(convolve: Convolve, tolerance: float) -> None:
    """NaN, infinities and what is too large for parts come out as from torch; the rest within the tolerance."""
    x, weight = torch.randn(2, 8, 40, 44, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
    x[0, 3, 5, 7], x[0, 1, 20, 21], x[1, 0, 0, 0], x[1, 2, 39, 1] = torch.nan, torch.inf, -torch.inf, 3.4e38
    asked = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1)}
    found = convolve(x, weight, None, asked)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        right = torch.convolution(x, weight, None, *asked.values(), False, (0, 0), 1)
    assert torch.equal(found.isnan(), right.isnan())
    assert torch.equal(found[right.isinf()], right[right.isinf()])
    finite = right.isfinite()
    torch.testing.assert_close(found[finite], right[finite], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("inputs", "filters", "options"), CONVOLUTIONS)
def test_it_is_as_accurate_as_fp32(gathered: Any, inputs: Shape, filters: Shape, options: Options) -> None:
    limit = 2e-6 if gathered.STAGED else 4e-7
    # The small products in fp8, which needs steps of four columns.
    if "STAGED_FP8 1" in gathered.STAGED_SOURCE and options.get("stride", (1,))[-1] % 4 == 0:
        limit = 6e-5
    assert_accurate(partial(convolved, gathered), inputs, filters, options, limit)


def test_it_takes_over_what_is_not_finite_and_huge(gathered: Any) -> None:
    assert_not_finite_is_taken_over(partial(convolved, gathered), 1e-5)


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv3d(3, 16, 4), nn.BatchNorm3d(16)

    def forward(self, x):
        return torch.relu(self.norm(self.convolution(x)))


def get_inputs():
    return [torch.randn(128, 3, 16, 32, 32)]


def get_init_inputs():
    return []
"""


def test_a_kernel_with_it_is_right_and_faster_than_with_pairs(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        texts = [process.source(), process.fused()]
    sources = [with_split_products(text or "") or "" for text in texts]
    assert all("gather" in source for source in sources)
    staged, fused, pairs = speedups(problem, (*sources, with_values(sources[0], {"PRODUCT_0": "1"})), tmp_path)
    print("staged, with what follows in one kernel, pairs, times eager:", staged, fused, pairs)
    assert min(staged, fused) > pairs


def test_all_templates_are_one_file(tmp_path: Path) -> None:
    module = imported("\n\n".join(map(template, TEMPLATES)), tmp_path, "all")
    x, weight = torch.randn(1, 1, 8, 8, device="cuda"), torch.randn(1, 1, 3, 3, device="cuda")
    found = convolved(module, x, weight, None, {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)})
    assert found.shape == F.conv2d(x, weight, padding=1).shape
