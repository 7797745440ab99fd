"""Attention on pairs of fp16, on a device of sm_90."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.templates import template
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]

Tensor = torch.Tensor
SETTINGS: list[dict[str, str]] = [
    {},
    {"ATTEND_M": "128", "ATTEND_N": "64"},
    {"ATTEND_STAGES": "3"},
    {"ATTEND_STAGES": "1", "ATTEND_N": "64"},
]
#: batch, heads, queries, keys, numbers of a row of q, of v.
SHAPES = [
    (2, 3, 150, 150, 96, 96),
    (1, 2, 64, 200, 128, 64),
    (3, 1, 70, 33, 40, 72),
    (2, 4, 1, 17, 16, 16),
    (1, 1, 1000, 1030, 32, 100),
]


@pytest.fixture(params=SETTINGS, ids=["as declared", "large", "deep", "in turn"])
def split(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    text = "\n\n".join(map(template, ("imports", "attention_pairs", "attention_tiles", "split_attention")))
    return imported(with_values(text, request.param), tmp_path, "split")


def operands(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as a layer gives them: heads of one row side by side."""
    torch.manual_seed(0)
    batch, heads, queries, keys, size, wide = shape
    q, k, v = (
        torch.randn(batch, rows, heads, numbers, device="cuda").transpose(1, 2)
        for rows, numbers in ((queries, size), (keys, size), (keys, wide))
    )
    return q, k.mT, v


def compare(split: Any, q: Tensor, kt: Tensor, v: Tensor, mask: Any, bias: Any, causal: bool) -> None:
    """Each row of finite numbers is as accurate as torch's in fp32; what is not finite is the same."""
    found = split.split_attention(q, kt, v, mask, bias, 0.2, causal, False)
    wide = None if bias is None else bias.double()
    truth = split.attend_by_library(q.double(), kt.double(), v.double(), mask, wide, 0.2, causal, False)
    if q.dim() == 4:
        turned = split.split_attention(q, kt, v, mask, bias, 0.2, causal, True)
        assert turned.is_contiguous()
        torch.testing.assert_close(turned.transpose(1, 2), found, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.isnan(), truth.isnan())
    assert torch.equal(found.isposinf(), truth.isposinf())
    kept = truth.isfinite()
    error = (found - truth).where(kept, 0).norm(dim=-1) / truth.where(kept, 0).norm(dim=-1).clamp_min(1e-30)
    assert error.max() < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_as_accurate_as_fp32(split: Any, shape: tuple[int, ...]) -> None:
    q, kt, v = operands(shape)
    scores = (*q.shape[:-1], kt.shape[-1])
    hidden = torch.rand(scores[-2:], device="cuda") < 0.3
    compare(split, q, kt, v, None, None, False)
    compare(split, q, kt, v, None, None, True)
    compare(split, q, kt, v, hidden, None, False)
    compare(split, q, kt, v, hidden.triu().expand(scores), torch.randn(scores[1:], device="cuda"), False)
    compare(split, q[0], kt[0], v[0], None, torch.randn(scores[-2:], device="cuda"), False)


def test_a_row_without_keys_is_nan_and_tiles_without_keys_are_left_out(split: Any) -> None:
    q, kt, v = operands((1, 2, 300, 300, 64, 64))
    mask = torch.ones(300, 300, device="cuda", dtype=torch.bool).triu(1)
    mask[:, 40:200] = True
    mask[7] = True
    compare(split, q, kt, v, mask, None, False)


def test_a_large_value_costs_no_row_that_does_not_see_it_its_accuracy(split: Any) -> None:
    q, kt, v = operands((1, 1, 150, 150, 96, 96))
    kt[0, 0, 3, 140] = v[0, 0, 140] = 2.0**40
    compare(split, q, kt, v, None, None, True)


@pytest.mark.parametrize("size", [2.0**20, 2.0**30, 2.0**40])
def test_rows_with_large_scores_are_right(split: Any, size: float) -> None:
    # Rounding of such scores is a larger number than those that an exponential to base 2 takes.
    q, kt, v = operands((1, 2, 300, 300, 96, 96))
    q[:, :, 250] *= size
    kt[:, :, :, 20] *= size
    compare(split, q, kt, v, None, None, True)
    compare(split, q, kt, v, None, None, False)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_finite_goes_where_torchs_goes(split: Any, value: float, causal: bool) -> None:
    for operand in range(3):
        given = operands((2, 2, 150, 150, 96, 96))
        given[operand][0, 1, 5, 20] = value
        compare(split, *given, None, None, causal)


def test_a_layer_with_it_is_judged_correct(tmp_path: Path) -> None:
    problem = find_problem("L3/transformer_block")
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain = process.source()
        source = with_split_products(process.for_templates() or plain)
    assert source is not None
    assert "split_attention if" in source
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        found = judge.evaluate(problem, Kernel.from_source(source))
    assert found.verdict is Verdict.CORRECT, found.message
    print(f"{found.timing.speedup:.2f} times eager, error {found.accuracy.error:.1e}")
    assert found.timing.speedup is not None
    assert found.timing.speedup > 1.3
