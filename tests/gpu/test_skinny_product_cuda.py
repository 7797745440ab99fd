"""Products of few rows whose weights are read once, on a device of sm_90."""

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
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
SETTINGS: list[dict[str, str]] = [{}, {"SKINNY_STAGES": "3"}]
#: M, N, K.
SHAPES = [
    (128, 512, 1024),
    (10, 1000, 4096),
    (1, 77, 32),
    (130, 200, 100),
    (256, 129, 2052),
    (17, 64, 8),
    (128, 99, 32768),
]


@pytest.fixture(params=SETTINGS, ids=["declared", "few stages"])
def skinny(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    text = "\n\n".join(map(template, ("imports", "no_epilogue", "split_pairs", "split_products", "skinny_product")))
    return imported(with_values(text, request.param), tmp_path, "skinny")


@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
def test_it_is_as_accurate_as_fp32(skinny: Any, M: int, N: int, K: int) -> None:
    torch.manual_seed(0)
    bound = 4e-7 if K < 8192 else 8e-7  # sums of long rows are rounded more often
    for size in (1.0, 2.0**-40, 2.0**60):
        a, weight = torch.randn(M, K, device="cuda") * size, torch.randn(N, K, device="cuda")
        bias, out = torch.randn(N, device="cuda") * size, torch.empty(M, N, device="cuda")
        assert skinny.skinny_fits(a, weight.T)
        truth = a.double() @ weight.double().T
        found = skinny.skinny_mm(a, weight.T, out=out)
        assert (found - truth).norm() < bound * truth.norm(), size
        truth = 0.5 * truth + 2 * bias.double()
        found = skinny.skinny_addmm(bias, a, weight.T, beta=2, alpha=0.5, out=out)
        assert (found - truth).norm() < bound * truth.norm(), size


@pytest.mark.parametrize("spread", [1e-3, 30.0, 1e4])
def test_columns_of_all_sizes_are_accurate(skinny: Any, spread: float) -> None:
    # A column's power of two comes from some of its numbers; the largest may be another, and all of those may be zero.
    torch.manual_seed(1)
    a, weight = torch.randn(128, 4096, device="cuda"), torch.randn(300, 4096, device="cuda")
    weight *= torch.exp2(torch.randint(-60, 60, (300, 1), device="cuda"))
    weight[::3, 100] *= spread  # below what one of fp16 can hold beside the others, and above
    weight[1::3, :200] = 0.0
    weight[7], weight[8, :4095] = 0.0, 0.0
    weight[9, :] *= 2.0**-60
    weight[10, 77] = 2.0**100
    truth = a.double() @ weight.double().T
    found = skinny.skinny_mm(a, weight.T, out=torch.empty(128, 300, device="cuda"))
    error, size = (found - truth).norm(dim=0), truth.norm(dim=0)
    # Those that begin with zeros are summed again in fp32, one number after the other, and with them their neighbours.
    assert (error <= 3e-6 * size).all(), (error / size.clamp_min(1e-300)).max()


def test_it_takes_over_what_is_not_finite_and_huge(skinny: Any) -> None:
    a, weight = torch.randn(20, 500, device="cuda"), torch.randn(300, 500, device="cuda")
    a[3, 7], a[5, 1], weight[2, 9], weight[100, 0] = torch.nan, torch.inf, -torch.inf, 3.4e38
    found = skinny.skinny_mm(a, weight.T, out=torch.empty(20, 300, device="cuda"))
    right = a @ weight.T
    assert torch.equal(found.isnan(), right.isnan())
    assert torch.equal(found[right.isinf()], right[right.isinf()])
    finite = right.isfinite()
    torch.testing.assert_close(found[finite], right[finite], rtol=1e-5, atol=1e-4)


def test_what_does_not_fit_is_the_librarys(skinny: Any) -> None:
    a, out = torch.randn(20, 63, device="cuda"), torch.empty(20, 30, device="cuda")
    # Of the first K does not lie side by side, and rows of the second begin where TMA cannot read.
    for b in (torch.randn(63, 30, device="cuda"), torch.randn(30, 63, device="cuda").T):
        assert torch.equal(skinny.skinny_mm(a, b, out=out), a @ b)
        assert torch.equal(skinny.skinny_addmm(b[0], a, b, out=out), torch.addmm(b[0], a, b))


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8192, 16384), nn.Linear(16384, 1024)

    def forward(self, x):
        return torch.sigmoid(self.second(torch.relu(self.first(x))))


def get_inputs():
    return [torch.randn(128, 8192)]


def get_init_inputs():
    return []
"""


def test_a_kernel_with_it_is_right_and_faster_than_with_pairs(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain = process.source()
        texts = [process.for_templates() or plain, process.fused()]
    sources = [with_split_products(text or "") or "" for text in texts]
    assert all("skinny_product" in source for source in sources)
    # Only of the first: with 1024 columns, as the second has, too few programs read its weights.
    chosen = [with_values(one, {"PRODUCT_0": n, "PRODUCT_1": "1"}) for one in sources for n in "21"]
    skinny, pairs, fused, fused_pairs = speedups(problem, chosen, tmp_path)
    print("read once and as pairs, then the same with what follows, times eager:", skinny, pairs, fused, fused_pairs)
    assert skinny > pairs
    assert fused > fused_pairs
