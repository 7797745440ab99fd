"""Attention in a traced graph becomes one operator, and only where that computes the same."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.evolve.proposers.seeds.attention import with_attention
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from tests.evolve.proposers.seeds.dynamo import graph_of
from tests.evolve.proposers.seeds.test_seeds import problem_of

Tensor = torch.Tensor
CAUSAL = torch.ones(12, 12, dtype=torch.bool).triu(1)
BIAS = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def calls() -> Iterator[list[tuple[Any, ...]]]:
    """The mask, bias, scale, causal and turned of each call of the operator, which is defined by torch here."""
    noted: list[tuple[Any, ...]] = []

    def attention(
        q: Tensor, kt: Tensor, v: Tensor, mask: Any, bias: Any, scale: float, causal: bool, turned: bool
    ) -> Tensor:
        noted.append((mask is not None, bias is not None, round(scale, 4), causal, turned))
        scores = q @ kt * scale + (0 if bias is None else bias)
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        out = torch.softmax(scores if mask is None else scores.masked_fill(mask, -math.inf), dim=-1) @ v
        return out.transpose(1, 2).contiguous() if turned else out

    library = torch.library.Library("kbevolve", "FRAGMENT")
    with_attention(torch.fx.symbolic_trace(nn.Identity()), [torch.zeros(1)])  # defines the operator
    library.impl("attention", attention, "CPU")
    yield noted
    library._destroy()


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * 0.25
    return F.dropout(F.softmax(scores.masked_fill(CAUSAL, -math.inf), dim=-1), 0.5, training=False) @ v


def shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(((q @ k.mT) / 2 + BIAS).softmax(3), v)


def cosines(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    each = BIAS[:, :1, :1].exp()
    return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * each + BIAS).softmax(-1) @ v


def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def seen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~CAUSAL, scale=0.5)


def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=BIAS)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def batches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(torch.softmax(torch.bmm(q[0], k[0].mT), 2), v[0])


def side_by_side(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return whole(q, k, v).transpose(1, 2).contiguous().view(2, 12, 48) * 2


def permuted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return whole(q, k, v).permute(0, 2, 1, 3).reshape(24, 48)


def also_alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    found = whole(q, k, v).transpose(-2, 1)
    return found.contiguous().add_(1).view(2, 12, 48) + found.flatten(2)


def both_ways(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    found = whole(q, k, v)
    return found.transpose(1, 2).contiguous() + found.sum()


def other_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return whole(q, k, v).transpose(1, 3).contiguous()


HEADS = nn.MultiheadAttention(48, 3).eval()


def heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    x = q.transpose(1, 2).reshape(2, 12, 48)
    return HEADS(x, x, x)[0]


def rewritten(function: Callable[..., Tensor], inputs: list[Tensor]) -> Callable[..., Any] | None:
    """The function, traced as torch.compile does, with the operator; None where there is no attention."""
    graph, taken = graph_of(function, inputs)
    with torch.no_grad():
        found = with_attention(graph, taken)
    return None if found is None else lambda: found(*taken)


def inputs_of(size: int = 16, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 12, 3, size, dtype=dtype).transpose(1, 2) for _ in range(3)]


@pytest.mark.parametrize(
    ("function", "noted"),
    [
        (written_out, (True, False, 0.25, False, False)),
        (shifted, (False, True, 0.5, False, False)),
        (cosines, (False, True, 1.0, False, False)),
        (whole, (False, False, 0.25, False, False)),
        (seen, (True, False, 0.5, False, False)),
        (biased, (False, True, 0.25, False, False)),
        (causal, (False, False, 0.25, True, False)),
        (side_by_side, (False, False, 0.25, False, True)),
        (permuted, (False, False, 0.25, False, True)),
        (also_alone, (False, False, 0.25, False, True)),
        (both_ways, (False, False, 0.25, False, False)),
        (other_axes, (False, False, 0.25, False, False)),
        (batches, (False, False, 1.0, False, False)),
        (heads, (False, False, 1.0, False, False)),
    ],
)
def test_it_is_found_and_computes_the_same(
    function: Callable[..., Tensor], noted: tuple[Any, ...], calls: list[tuple[Any, ...]]
) -> None:
    inputs = inputs_of()
    found = rewritten(function, inputs)
    assert found is not None
    with torch.no_grad():
        torch.testing.assert_close(found()[0], function(*inputs))
    assert calls == [noted]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (written_out, inputs_of(dtype=torch.float64)),
        (whole, inputs_of(200)),
        (lambda q, k, v: (q @ k.mT).softmax(-2) @ v, inputs_of()),
        (lambda q, k, v: (q @ k.mT).relu() @ v, inputs_of()),
        (
            lambda q, k, v: ((q @ k.mT).masked_fill(CAUSAL, -math.inf) * 0.5 + BIAS * 2).tanh().softmax(-1) @ v,
            inputs_of(),
        ),
        (lambda q, k, v: (q @ k.mT).masked_fill(CAUSAL, -1.0).softmax(-1) @ v, inputs_of()),
        (lambda q, k, v: torch.add(q @ k.mT, BIAS, alpha=2).softmax(-1) @ v, inputs_of()),
        (lambda q, k, v: ((q @ k.mT) + BIAS).mul(0.5).softmax(-1) @ v, inputs_of()),
        (lambda q, k, v: (w := (q @ k.mT).softmax(-1)) @ v + w.sum(), inputs_of()),
        (lambda q, k, v: (q[:1] @ k.mT).softmax(-1) @ v, inputs_of()),
    ],
    ids=["fp64", "long", "columns", "relu", "tanh", "finite", "alpha", "bias", "twice", "broadcast"],
)
def test_what_it_does_not_compute_stays(function: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    assert rewritten(function, inputs) is None


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (one.view(2, 12, 2, 16).transpose(1, 2) for one in self.into(x).split(32, dim=2))
        return nn.functional.softmax(q @ k.transpose(-2, -1) * 0.25, dim=-1) @ v


def get_inputs():
    return [torch.rand(2, 12, 32)]


def get_init_inputs():
    return []
"""


CONVOLUTIONS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x):
        return torch.sigmoid(self.layers(x))


def get_inputs():
    return [torch.rand(2, 8, 16, 16)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_inductors_code_calls_the_template(tmp_path: Any) -> None:
    with InductorProcess(problem_of(MODEL, tmp_path), "cpu", templates=True) as process:
        plain, fused = process.source(), process.for_templates() or ""
    assert "kbevolve" not in plain.replace("kbevolve.", "")
    assert "torch.ops.kbevolve.attention.default(" in fused
    split = with_split_products(fused)
    assert split is not None
    assert "(split_attention if PRODUCT_1 else attend_by_library)(reinterpret_tensor(" in split
    assert "torch.ops.kbevolve.attention.default(" not in split


@pytest.mark.slow
def test_without_attention_templates_are_put_into_the_same_code(tmp_path: Any) -> None:
    text = MODEL.replace("nn.functional.softmax", "torch.relu").replace(", dim=-1) @ v", ") @ v")
    with InductorProcess(problem_of(text, tmp_path), "cpu", templates=True) as process:
        assert process.source()
        assert process.for_templates() is None


@pytest.mark.slow
def test_a_number_that_becomes_a_tensor_is_in_the_code(tmp_path: Any) -> None:
    text = MODEL.replace("self.into(x)", "self.into(x * torch.log(torch.tensor(9.0)))")
    with InductorProcess(problem_of(text, tmp_path), "cpu", templates=True) as process:
        assert process.source()
        assert "torch.ops.kbevolve.attention.default(" in (process.for_templates() or ""), process.failure


@pytest.mark.slow
def test_templates_convolve_tensors_as_they_lie_in_memory(tmp_path: Any) -> None:
    text = CONVOLUTIONS
    with InductorProcess(problem_of(text, tmp_path), "cpu", templates=True) as process:
        plain, for_templates = process.source(), process.for_templates() or ""
    assert plain.count("extern_kernels.convolution(") == for_templates.count("extern_kernels.convolution(") == 2
    assert "(2, 8, 16, 16), (2048, 1, 128, 8)" in plain
    assert "(2, 8, 16, 16), (2048, 256, 16, 1)" in for_templates
