"""Convolutions whose input the tensor cores read as it lies in shared memory, on a device of sm_90."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import values_of, with_values
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.gpu.speedups import speedups
from tests.gpu.test_gathered_convolution_cuda import Options, Shape, assert_accurate, assert_not_finite_is_taken_over
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
#: Input, filters, and what differs from a step of 1 without padding.
CONVOLUTIONS: list[tuple[Shape, Shape, Options]] = [
    ((3, 8, 66, 70), (64, 8, 3, 3), {}),
    ((2, 16, 40, 1024), (128, 16, 3, 3), {"padding": (1, 1)}),
    ((2, 13, 37, 45), (70, 13, 3, 4), {"padding": (2, 1), "dilation": (2, 3)}),
    ((2, 8, 9, 21, 33), (24, 8, 3, 3, 3), {"stride": (2, 1, 1), "padding": (1, 1, 1)}),
    ((4, 32, 500), (48, 32, 5), {"padding": (4,)}),
    ((1, 40, 30, 31), (5, 40, 1, 1), {}),
    ((2, 5, 7, 300), (33, 5, 2, 7), {"padding": (0, 3)}),
    ((700, 8, 20, 34), (64, 8, 3, 3), {}),
    ((600, 24, 20, 34), (40, 24, 3, 3), {"padding": (1, 1)}),
]
#: Of transposed ones: input, filters and padding.
TURNED: list[tuple[Shape, Shape, Shape]] = [
    ((2, 32, 20, 90), (32, 32, 3, 7), (1, 3)),
    ((2, 24, 31, 33), (40, 24, 3, 3), (0, 0)),
]


@pytest.fixture(params=["3", "2"], ids=["declared", "two at once"])
def windows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    files = TEMPLATES[: TEMPLATES.index("window_convolution") + 1]
    text = "\n\n".join(map(template, files))
    return imported(with_values(text, {"WINDOW_READ": request.param}), tmp_path, "windows")


def convolved(module: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, asked: Options) -> Any:
    none = (0,) * (x.dim() - 2)
    plan = module.window_plan(x, weight, *asked.values(), False, none, 1, 0)
    return None if plan is None else plan(x, weight, bias, ())


@pytest.mark.parametrize(("inputs", "filters", "options"), CONVOLUTIONS)
def test_it_is_as_accurate_as_fp32(windows: Any, inputs: Shape, filters: Shape, options: Options) -> None:
    assert_accurate(partial(convolved, windows), inputs, filters, options, 2e-6)


@pytest.mark.parametrize(("inputs", "filters", "padding"), TURNED)
def test_transposed_ones_are_too(windows: Any, inputs: Shape, filters: Shape, padding: Shape) -> None:
    torch.manual_seed(0)
    filters = (filters[1], filters[0], *filters[2:])
    x, weight, bias = (torch.randn(shape, device="cuda") for shape in (inputs, filters, filters[1:2]))
    plan = windows.window_plan(x, weight, (1, 1), padding, (1, 1), True, (0, 0), 1, 0)
    truth = torch.conv_transpose2d(x.double(), weight.double(), bias.double(), padding=padding)
    found = plan(x, weight, bias, ())
    assert found.shape == truth.shape
    assert (found - truth).norm() < 2e-6 * truth.norm()


def test_it_takes_over_what_is_not_finite_and_huge(windows: Any) -> None:
    def convolve(x: torch.Tensor, weight: torch.Tensor, bias: Any, asked: Options) -> torch.Tensor:
        asked = asked | {"stride": (1, 1)}
        found: torch.Tensor = convolved(windows, x, weight, bias, asked)
        return found[:, :, ::2].contiguous()  # a step of 2 in the first dimension

    assert_not_finite_is_taken_over(convolve, 1e-4)


def test_a_block_computes_strips_of_both_kinds(windows: Any) -> None:
    """Each multiprocessor has several strips, some of them with numbers that are too large or too small for pairs."""
    torch.manual_seed(0)
    x, weight = torch.randn(700, 8, 20, 34, device="cuda"), torch.randn(64, 8, 3, 3, device="cuda")
    x[100:120] *= 2.0**-40
    x[300] *= 2.0**20
    x[500, 3, 7, 11] = torch.inf
    found = convolved(windows, x, weight, None, {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)})
    truth = torch.conv2d(x.double(), weight.double())
    assert torch.equal(found.isfinite(), truth.isfinite())
    errors = (found - truth).nan_to_num(0, 0, 0).flatten(1).norm(dim=1) / truth.nan_to_num(0, 0, 0).flatten(1).norm(
        dim=1
    )
    assert errors.max() < 2e-6


def test_a_filter_that_is_not_finite_gives_what_the_library_gives(windows: Any) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 8, 40, 50, device="cuda"), torch.randn(64, 8, 3, 3, device="cuda")
    weight[5, 2, 1, 1], weight[60, 0, 0, 2] = torch.inf, torch.nan
    found = convolved(windows, x, weight, None, {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)})
    truth = torch.conv2d(x.double(), weight.double())
    assert torch.equal(found.isinf(), truth.isinf())
    assert torch.equal(found.isnan(), truth.isnan())
    assert (found - truth).nan_to_num(0, 0, 0).norm() < 2e-6 * truth.nan_to_num(0, 0, 0).norm()


def test_what_does_not_fit_is_left_to_pairs(windows: Any) -> None:
    x, weight = torch.randn(2, 96, 20, 20, device="cuda"), torch.randn(64, 96, 3, 3, device="cuda")
    options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0)}
    found = windows.window_convolution(x, weight, **options, transposed=False, groups=1, bias=None)
    truth = torch.conv2d(x.double(), weight.double())
    assert (found - truth).norm() < 1e-6 * truth.norm()


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(8, 64, 3)

    def forward(self, x):
        return torch.nn.functional.mish(self.convolution(x) - 0.5)


def get_inputs():
    return [torch.rand(32, 8, 128, 128)]


def get_init_inputs():
    return []
"""


def test_a_kernel_with_it_is_right_and_faster_than_the_others(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain = process.source()
        texts = [process.for_templates() or plain, process.fused()]
    sources = [with_split_products(text or "") or "" for text in texts]
    chosen = []
    for source in sources:
        number = values_of(source)["PRODUCT_0"]
        assert f"window if PRODUCT_0 == {number}" in source or f"window_convolution if PRODUCT_0 == {number}" in source
        chosen += [source, with_values(source, {"PRODUCT_0": "2"}), with_values(source, {"PRODUCT_0": "1"})]
    found = speedups(problem, chosen, tmp_path)
    print("by windows, staged and as pairs, then the same with what follows, times eager:", found)
    assert found[0] > max(found[1:3])
    assert found[3] > max(found[4:6])
