"""Products and what follows them in one kernel, on a device of sm_90."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.templates import template
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.epilogues import text_of
from kbevolve.evolve.proposers.seeds.fusion import Fused
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.evolve.proposers.seeds.test_attention import CONVOLUTIONS
from tests.evolve.proposers.seeds.test_fusion import Batched, Block, Chain, Depthwise, Fresh, Rows, Turned, traced
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
Tensor = torch.Tensor
FILES = ("split_pairs", "split_products", "convolution_product", "convolution_steps", "split_convolution")
FUSED = ("fused_products", "fused_convolutions", "direct_convolution", "fused_groups")


def module_of(fused: Fused, folder: Path) -> ModuleType:
    """The templates with the epilogues of a graph."""
    parts = [*map(template, ("imports", "functions")), text_of(fused.epilogues), *map(template, (*FILES, *FUSED))]
    return imported("\n\n".join(parts), folder, "fused")


def result(fused: Fused, module: ModuleType, taken: list[Any]) -> Tensor:
    """What the graph computes with the templates."""
    library = torch.library.Library("kbevolve", "FRAGMENT")
    try:
        library.impl("product", module.fused_product, "CUDA")
        library.impl("convolution", module.fused_convolution, "CUDA")
        library.impl("grouped", module.fused_grouped, "CUDA")
        with torch.no_grad():
            found: Tensor = fused.graph(*taken)[0]
            return found
    finally:
        library._destroy()


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (Block, [(3, 6, 61, 47)]),
        (Rows, [(3, 50, 8)]),
        (Turned, [(3, 4, 36, 25)]),
        (Depthwise, [(3, 6, 91, 150)]),
        (Batched, [(3, 40, 96), (3, 96, 96)]),
        (Fresh, [(300, 8)]),
        (lambda: nn.Sequential(nn.Conv2d(6, 16, 5, stride=2), nn.Conv2d(16, 16, 3, groups=4)), [(3, 6, 91, 90)]),
    ],
)
def test_it_computes_what_the_model_does(
    model: Callable[[], nn.Module], shapes: list[tuple[int, ...]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    own = model().cuda().eval()
    inputs = [torch.randn(shape, device="cuda") for shape in shapes]
    fused, taken = traced(own, inputs)
    assert fused is not None
    found = result(fused, module_of(fused, tmp_path), taken)
    with torch.no_grad():
        truth = own.double()(*(one.double() for one in inputs))
    assert found.shape == truth.shape
    assert (found - truth).norm() < 2e-6 * truth.norm()


#: Each function of configs/templates/functions.py, near zero, far from it and beyond.
FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    torch.abs, torch.erf, torch.exp, torch.expm1, torch.tanh, torch.sigmoid, torch.square, F.mish, F.relu, F.relu6,
    F.silu, F.gelu, F.hardswish, F.hardsigmoid, F.selu, F.elu, F.softplus,
    lambda y: F.gelu(y, approximate="tanh"), lambda y: torch.log(y.abs() + 0.5), lambda y: torch.log1p(y.abs()),
    lambda y: torch.rsqrt(y.abs() + 1), lambda y: torch.sqrt(y.abs()), lambda y: F.leaky_relu(y, 0.2),
]  # fmt: skip


def test_functions_are_as_accurate_as_torchs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 32, device="cuda") * 2.0 ** torch.randint(-12, 4, (200, 1), device="cuda")
    weight = torch.eye(32, device="cuda")
    for function in FUNCTIONS:
        model = Chain(function, weight).cuda()
        fused, taken = traced(model, [x])
        assert fused is not None
        found = result(fused, module_of(fused, tmp_path), taken)
        truth, theirs = function(x.double()), function(x)
        # A product of pairs is off by 2e-7 of its size, and far from zero exp makes 30 times as much of that.
        moved = (function(x.double() * (1 + 4e-7)) - truth).abs()
        allowed = 4 * (theirs - truth).abs().max() + 3e-7 * truth.abs() + moved
        assert ((found - truth).abs() <= allowed).all(), function


@pytest.mark.parametrize("transposed", [False, True])
def test_what_follows_waits_for_numbers_that_are_not_finite(transposed: bool, tmp_path: Path) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    model = nn.Sequential(kind(8, 40, 3, stride=2, padding=1), nn.BatchNorm2d(40), nn.Hardtanh(-0.5, 0.5)).cuda().eval()
    x = torch.randn(2, 8, 40, 44, device="cuda")
    x[0, 3, 5, 7], x[0, 1, 20, 21], x[1, 0, 0, 0], x[1, 2, 39, 1] = torch.nan, torch.inf, -torch.inf, 2.0**40
    fused, taken = traced(model, [x])
    assert fused is not None
    found = result(fused, module_of(fused, tmp_path), taken)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        right = model(x)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_what_follows_a_product_waits_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(300, 100), nn.Sigmoid()).cuda().eval()
    x = torch.randn(200, 300, device="cuda")
    x[3, 5], x[7, 9], x[8, 0] = torch.nan, torch.inf, -torch.inf
    fused, taken = traced(model, [x])
    assert fused is not None
    found = result(fused, module_of(fused, tmp_path), taken)
    with torch.no_grad():
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-6, equal_nan=True)


LARGE = CONVOLUTIONS.replace("(8, 8, 3, padding=1)", "(64, 64, 3, padding=1)").replace(
    "(2, 8, 16, 16)", "(16, 64, 96, 96)"
)


def test_a_kernel_with_them_is_right_and_no_slower(tmp_path: Path) -> None:
    problem = problem_of(LARGE, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain = process.source()
        sources = [with_split_products(text or "") for text in (process.for_templates() or plain, process.fused())]
    settings = EvaluationSettings(profile=False, baselines=False)
    speedups = []
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        for source in sources:
            assert source is not None
            found = judge.evaluate(problem, Kernel.from_source(source))
            assert found.verdict is Verdict.CORRECT, found.message
            assert found.accuracy.precision_class == "fp32"
            speedups.append(found.timing.speedup or 0.0)
        by_library = judge.evaluate(problem, Kernel.from_source(with_values(sources[1] or "", {"PRODUCT_0": "0"})))
    print("apart and fused, times eager:", speedups)
    assert by_library.verdict is Verdict.CORRECT, by_library.message
    assert speedups[1] > 0.98 * speedups[0]
