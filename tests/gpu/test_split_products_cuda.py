"""Products of fp16 pairs, and Inductor's code with them, on a device of sm_90."""

from itertools import product as combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.inductor_process import inductor_source
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]

#: batch, M, N, K.
SHAPES = [
    (1, 256, 256, 64),
    (2, 70, 33, 45),
    (1, 5, 200, 31),
    (3, 129, 64, 100),
    (1, 1000, 777, 3000),
    (70, 96, 130, 64),
    (1, 600, 520, 1500),
]
SETTINGS: list[dict[str, str]] = [
    {},
    {"SPLIT_N": "64", "SPLIT_K": "64", "SPLIT_STAGES": "3", "SPLIT_GROUP": "1"},
    {
        "SPLIT_N": "64",
        "SPLIT_K": "64",
        "SPLIT_STAGES": "2",
        "CONV_N": "32",
        "CONV_REST": "16",
        "CONV_K": "16",
    },
]
#: Products and convolutions whose corrections are in fp8.
FP8 = [{"SPLIT_FP8": "1"}, {"SPLIT_FP8": "1", "SPLIT_N": "64", "SPLIT_K": "32", "SPLIT_STAGES": "4"}]
CONV_FP8 = [{"CONV_FP8": "1"}, {"CONV_FP8": "1", "CONV_N": "32", "CONV_REST": "16", "CONV_K": "64"}]
#: Input, filters, and what differs from a step of 1 without padding.
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    ((2, 5, 9, 11), (7, 5, 3, 3), {"padding": (1, 1)}),
    ((2, 3, 223, 221), (96, 3, 11, 11), {"stride": (4, 4), "padding": (2, 2)}),
    ((2, 20, 33, 32), (70, 20, 3, 2), {"dilation": (2, 3), "padding": (2, 0)}),
    ((3, 64, 400), (128, 64, 5), {"stride": (2,), "padding": (1,)}),
    ((3, 64, 400), (128, 64, 3), {"stride": (3,), "padding": (2,), "dilation": (4,)}),
    ((2, 32, 30, 33), (70, 32, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    ((2, 32, 30, 33), (70, 32, 1, 1), {"stride": (2, 2)}),
    ((2, 24, 23, 26), (48, 24, 3, 5), {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 2)}),
    ((1, 16, 7, 9, 18), (20, 16, 3, 3, 2), {"stride": (2, 1, 3), "padding": (1, 1, 0), "dilation": (1, 2, 1)}),
    ((1, 4, 16, 17, 18), (5, 4, 3, 2, 3), {"stride": (2, 1, 1), "padding": (1, 0, 1)}),
    ((16, 64, 56, 56), (256, 64, 1, 1), {}),
    ((2, 33, 30, 31), (96, 33, 3, 3), {"padding": (1, 1)}),
    # More tiles than multiprocessors: filters stay in shared memory, all of them or some, of one width or of two.
    ((10, 64, 64, 63), (64, 64, 3, 3), {"padding": (1, 1)}),
    ((10, 100, 64, 63), (120, 100, 3, 3), {"padding": (1, 1)}),
    ((10, 32, 64, 63), (160, 32, 3, 3), {"padding": (1, 1)}),
]
#: Likewise, transposed: the filters' first axis is the input's.
TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    ((2, 5, 19, 11), (5, 7, 3, 3), {}),
    ((2, 32, 25, 40), (32, 96, 3, 3), {"stride": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
    ((2, 5, 9, 11), (5, 24, 4, 3), {"stride": (2, 3), "padding": (1, 0), "output_padding": (0, 2)}),
    ((2, 8, 9, 7), (8, 12, 3, 3), {"padding": (1, 2), "dilation": (2, 3)}),
    ((1, 4, 5, 6, 7), (4, 6, 3, 3, 5), {"stride": (2, 2, 1), "padding": (1, 1, 2), "output_padding": (1, 0, 0)}),
    ((4, 16, 150), (16, 20, 5), {"stride": (3,), "padding": (2,), "output_padding": (1,)}),
]


@pytest.mark.parametrize(
    ("inputs", "filters", "options", "transposed"),
    [(*case, False) for case in CONVOLUTIONS] + [(*case, True) for case in TRANSPOSED],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_convolution_is_as_accurate_as_fp32_and_has_torchs_strides(
    convolution: Any,
    inputs: tuple[int, ...],
    filters: tuple[int, ...],
    options: dict[str, tuple[int, ...]],
    transposed: bool,
    last: bool,
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(inputs, device="cuda"), torch.randn(filters, device="cuda")
    if last and len(inputs) == 4:
        x, weight = (tensor.to(memory_format=torch.channels_last) for tensor in (x, weight))
    bias, dims = torch.randn(filters[1 if transposed else 0], device="cuda"), len(inputs) - 2
    asked = {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims, "output_padding": (0,) * dims}
    asked |= options
    found = convolution.split_convolution(x, weight, **asked, transposed=transposed, groups=1, bias=bias)
    positions = (asked["stride"], asked["padding"], asked["dilation"], transposed, asked["output_padding"], 1)
    truth = torch.convolution(x.double(), weight.double(), bias.double(), *positions)
    assert found.shape == truth.shape
    assert (found - truth).norm() < (3e-5 if convolution.CONV_FP8 else 1e-6) * truth.norm()
    if dims == 2:
        assert found.stride() == torch.convolution(x, weight, bias, *positions).stride()


def templates_with(values: dict[str, str], folder: Path) -> Any:
    return imported(with_values("\n\n".join(map(template, TEMPLATES)), values), folder, "split")


@pytest.fixture(params=SETTINGS, ids=["as declared", "small", "long"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return templates_with(request.param, tmp_path)


@pytest.fixture(params=[*SETTINGS[:2], *FP8], ids=["as declared", "small", "fp8", "small fp8"])
def product(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return templates_with(request.param, tmp_path)


def drawn(rows: int, columns: int, batch: int, turned: bool) -> torch.Tensor:
    """Rows (of what is returned) of many sizes; `turned`: columns of it lie side by side."""
    tensor = torch.randn(batch, rows, columns, device="cuda") * 2.0 ** torch.randint(
        -20, 20, (batch, rows, 1), device="cuda"
    )
    return tensor.mT.contiguous().mT if turned else tensor


@pytest.fixture(params=[*SETTINGS, *CONV_FP8], ids=["as declared", "small", "long", "fp8", "small fp8"])
def convolution(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return templates_with(request.param, tmp_path)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_of_any_strides_is_as_accurate_as_fp32(product: Any, shape: tuple[int, int, int, int]) -> None:
    torch.manual_seed(0)
    limit = 5e-5 if product.SPLIT_FP8 else 3e-6
    batch, M, N, K = shape
    # Each compiles kernels of its own. So a shape has a third of the twelve, and all shapes together have each twice.
    kinds, first = list(combinations((False, True), (False, True), ("none", "bias", "whole"))), SHAPES.index(shape)
    for a_turned, b_turned, kind in (kinds[at] for at in range(12) if (at // 3 + at + first) % 3 == 0):
        a, b = drawn(M, K, batch, a_turned), torch.randn(batch, N, K, device="cuda").mT
        b = b if b_turned else b.contiguous()
        c = {
            "none": None,
            "bias": torch.randn(N, device="cuda").expand(batch, M, N),
            "whole": torch.randn(batch, M, N, device="cuda"),
        }[kind]
        out = torch.full((batch, N, M), torch.nan, device="cuda").mT
        product.split_product(a, b, out, c, alpha=0.5, beta=2.0)
        truth = a.double() @ b.double()
        if c is not None:
            truth = 0.5 * truth + 2 * c.double()
        error = ((out - truth).norm(dim=2) / truth.norm(dim=2)).max()
        assert error < limit, (a_turned, b_turned, kind)


def test_what_is_not_finite_stays_in_its_own_rows(product: Any) -> None:
    a, b = torch.randn(200, 300, device="cuda"), torch.randn(300, 100, device="cuda")
    a[3, 5], a[7, 9], b[100, 11] = torch.nan, torch.inf, -torch.inf
    out = torch.empty(200, 100, device="cuda")
    product.split_mm(a, b, out=out)
    right = a @ b
    assert torch.equal(out.isnan(), right.isnan())
    assert torch.equal(out[right.isinf()], right[right.isinf()])


@pytest.mark.parametrize(
    ("inputs", "filters", "groups", "options"),
    [
        ((2, 33, 219, 121), (33, 1, 3, 3), 33, {"padding": (1, 1)}),
        ((2, 6, 190, 21), (12, 2, 5, 3), 3, {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 2)}),
        ((1, 4, 3000), (4, 1, 5), 4, {"stride": (3,), "padding": (2,)}),
        ((1, 4, 5, 66, 70), (8, 1, 3, 3, 2), 4, {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
        ((3, 70, 7, 7), (70, 1, 5, 5), 70, {"padding": (2, 2)}),
        ((2, 12, 57, 30), (12, 1, 3, 3), 12, {"padding": (1, 1), "stride": (2, 2)}),
        ((1, 5, 140, 131), (5, 1, 7, 7), 5, {"padding": (3, 3)}),
        ((2, 5, 40, 300), (5, 1, 11, 9), 5, {"padding": (5, 4)}),
    ],
)
def test_a_convolution_in_groups_is_as_accurate_as_fp32(
    split: Any,
    inputs: tuple[int, ...],
    filters: tuple[int, ...],
    groups: int,
    options: dict[str, tuple[int, ...]],
) -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, device="cuda") for shape in (inputs, filters, filters[:1]))
    dims = len(inputs) - 2
    asked = {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims} | options
    none = (0,) * dims
    found = split.direct_convolution(
        x, weight, **asked, transposed=False, output_padding=none, groups=groups, bias=bias
    )
    positions = (asked["stride"], asked["padding"], asked["dilation"], False, none, groups)
    truth = torch.convolution(x.double(), weight.double(), bias.double(), *positions)
    assert found.shape == truth.shape
    assert (found - truth).norm() < 1e-6 * truth.norm()


@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_takes_over_what_is_not_finite(convolution: Any, transposed: bool) -> None:
    x, weight = torch.randn(2, 8, 40, 44, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
    x[0, 3, 5, 7], x[0, 1, 20, 21], x[1, 0, 0, 0], x[1, 2, 39, 1] = torch.nan, torch.inf, -torch.inf, torch.inf
    positions = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1)}
    found = convolution.split_convolution(
        x, weight, **positions, transposed=transposed, output_padding=(0, 0), groups=1, bias=None
    )
    right = torch.convolution(x, weight, None, *positions.values(), transposed, (0, 0), 1)
    assert torch.equal(found.isnan(), right.isnan())
    assert torch.equal(found[right.isinf()], right[right.isinf()])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [12, 100])
def test_pixels_that_see_no_huge_number_stay_accurate(convolution: Any, transposed: bool, size: int) -> None:
    x = torch.randn(3, 24, size, size, device="cuda")
    x[1, 3, 5, 6], x[1, 20, 9, 1], x[2, 0, 0, 0] = 2.0**40, -(2.0**24), 1e37
    weight = torch.randn(24, 24, 3, 3, device="cuda")
    options = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "output_padding": (0, 0)}
    found = convolution.split_convolution(x, weight, transposed=transposed, groups=1, bias=None, **options)
    truth = torch.convolution(x.double(), weight.double(), None, (1, 1), (1, 1), (1, 1), transposed, (0, 0), 1)
    assert torch.allclose(found.double(), truth, rtol=1e-5, atol=1e-3 if convolution.CONV_FP8 else 1e-4)


@pytest.mark.parametrize("fp8", ["0", "1"])
@pytest.mark.parametrize("name", ["L2/gemm_bias_relu", "L1/matmul"])
def test_inductors_code_with_split_products_is_right_and_faster(name: str, fp8: str, tmp_path: Path) -> None:
    problem = find_problem(name)
    source = with_split_products(inductor_source(problem, "cuda"))
    assert source is not None
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        found = judge.evaluate(problem, Kernel.from_source(with_values(source, {"SPLIT_FP8": fp8})))
    assert found.verdict is Verdict.CORRECT, found.message
    print(f"{name}, fp8 {fp8}: {found.timing.speedup:.2f} times eager, error {found.accuracy.error:.1e}")
    assert found.accuracy.precision_class == "fp32"
    assert found.timing.speedup is not None
    assert found.timing.speedup > 1.3
