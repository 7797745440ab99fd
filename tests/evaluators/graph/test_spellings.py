"""One computation, many spellings: the same region."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.evaluators.graph.records import Family
from tests.evaluators.graph.graphs import graph_of_call, only


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        (lambda x, w: x @ w, ((6, 8), (8, 10))),
        (lambda x, w: torch.mm(x, w), ((6, 8), (8, 10))),
        (lambda x, w: x @ w.T, ((6, 8), (10, 8))),
        (lambda x, w: F.linear(x, w), ((6, 8), (10, 8))),
        (lambda x, w: torch.einsum("mk,nk->mn", x, w), ((6, 8), (10, 8))),
        (lambda x, w: torch.matmul(x, w.t()), ((6, 8), (10, 8))),
        (lambda x, w: x.T @ w, ((8, 6), (8, 10))),
        (lambda x, w: torch.einsum("km,kn->mn", x, w), ((8, 6), (8, 10))),
        (lambda x, w: x @ w, ((2, 3, 8), (8, 10))),
        (lambda x, w: torch.einsum("bsk,kn->bsn", x, w), ((2, 3, 8), (8, 10))),
    ],
)
def test_a_product_has_one_canonical_form(forward: Callable[..., Any], shapes: Any) -> None:
    region = only(graph_of_call(forward, *shapes))
    assert region.family is Family.PRODUCT
    assert region.contraction
    assert region.contraction.sizes == (1, 6, 10, 8)
    (m,), (n,), (k,) = region.contraction.m, region.contraction.n, region.contraction.k
    transposed_left, transposed_right = shapes[0] == (8, 6), shapes[1] == (10, 8)
    assert (m.left, k.left) == ((1, 6) if transposed_left else (8, 1))
    assert (k.right, n.right) == ((1, 8) if transposed_right else (10, 1))
    assert (m.out, n.out) == (10, 1)
    assert [(operand.role, operand.source) for operand in region.operands] == [
        ("left", "inputs_0"),
        ("right", "inputs_1"),
    ]


@pytest.mark.parametrize(
    ("forward", "shapes", "sizes"),
    [
        (torch.bmm, ((4, 6, 8), (4, 8, 10)), (4, 6, 10, 8)),
        (lambda x, y: torch.einsum("bmk,bkn->bmn", x, y), ((4, 6, 8), (4, 8, 10)), (4, 6, 10, 8)),
        (torch.matmul, ((2, 4, 6, 8), (4, 8, 10)), (4, 12, 10, 8)),
        (torch.matmul, ((6, 8), (8,)), (1, 6, 1, 8)),
        (torch.matmul, ((8,), (8, 10)), (1, 1, 10, 8)),
        (lambda x, y: torch.einsum("bijl,lk->bijk", x, y), ((2, 3, 4, 8), (8, 10)), (1, 24, 10, 8)),
        (lambda x, y: torch.einsum("bhqd,bkhd->bhqk", x, y), ((2, 3, 4, 8), (2, 5, 3, 8)), (6, 4, 5, 8)),
    ],
)
def test_batches_and_vectors(forward: Callable[..., Any], shapes: Any, sizes: tuple[int, ...]) -> None:
    matrices = all(len(shape) > 1 for shape in shapes)  # torch does not count a matrix times a vector
    region = only(graph_of_call(forward, *shapes, counted=matrices))
    assert region.contraction
    assert region.contraction.sizes == sizes


def test_constants_and_biases_of_products() -> None:
    region = only(graph_of_call(lambda b, x, y: torch.addmm(b, x, y, alpha=2, beta=3), (10,), (6, 8), (8, 10)))
    assert [operand.role for operand in region.operands] == ["left", "right", "bias"]
    assert region.constants == {"beta": 3, "alpha": 2}
    batched = only(graph_of_call(torch.baddbmm, (4, 6, 10), (4, 6, 8), (4, 8, 10)))
    assert [operand.source for operand in batched.operands] == ["inputs_1", "inputs_2", "inputs_0"]
    linear = only(graph_of_call(lambda fc, x: fc(x), (6, 8), layers=lambda: [nn.Linear(8, 10)]))
    assert [operand.source for operand in linear.operands] == ["inputs_0", "self.layers.0.weight", "self.layers.0.bias"]


def test_an_einsum_that_is_no_product_is_a_region_without_its_form() -> None:
    forward = lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z)  # noqa: E731
    region = only(graph_of_call(forward, (4, 5), (5, 6), (6, 7), counted=False))
    assert (region.family, region.contraction) == (Family.PRODUCT, None)


SPELT = {
    "softmax": [
        lambda x: torch.softmax(x, 1),
        lambda x: F.softmax(x, dim=-1),
        lambda x: torch.exp(x) / torch.exp(x).sum(1, keepdim=True),
        lambda x: (lambda e: e / e.sum(dim=-1, keepdim=True))(torch.exp(x - x.amax(1, keepdim=True))),
        lambda x: (lambda e: e / torch.sum(e, 1, keepdim=True))(torch.exp(x - x.max(dim=1, keepdim=True)[0])),
    ],
    "log_softmax": [
        lambda x: F.log_softmax(x, 1),
        lambda x: torch.log(torch.softmax(x, 1)),
        lambda x: x - torch.logsumexp(x, 1, keepdim=True),
        lambda x: x - x.exp().sum(1, keepdim=True).log(),
    ],
    "logsumexp": [lambda x: torch.logsumexp(x, 1), lambda x: torch.log(torch.sum(torch.exp(x), dim=1))],
    "rms_norm": [
        lambda x: F.rms_norm(x, (8,), eps=1e-5),
        lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5),
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5),
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5),
    ],
    "layer_norm": [
        lambda x: F.layer_norm(x, (8,)),
        lambda x: (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5),
        lambda x: (lambda c: c * torch.rsqrt((c**2).mean(1, keepdim=True) + 1e-5))(x - x.mean(1, keepdim=True)),
    ],
    "normalize": [
        lambda x: F.normalize(x, dim=1),
        lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True),
        lambda x: x / torch.norm(x, p="fro"),
    ],
    "gelu": [
        F.gelu,
        lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: x * 0.5 * (1.0 + torch.erf(x * 0.70710678)),
    ],
    "gelu_tanh": [
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
        lambda x: 0.5 * (x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))),
    ],
    "silu": [F.silu, lambda x: x * torch.sigmoid(x), lambda x: torch.sigmoid(x) * x],
    "mish": [F.mish, lambda x: x * torch.tanh(F.softplus(x))],
    "hardswish": [F.hardswish, lambda x: x * F.relu6(x + 3) / 6, lambda x: x * (torch.clamp(x + 3, 0, 6) / 6)],
    "softsign": [lambda x: x / (1 + torch.abs(x))],
}  # fmt: skip


@pytest.mark.parametrize(("form", "forward"), [(form, one) for form, spellings in SPELT.items() for one in spellings])
def test_spellings(form: str, forward: Callable[..., Any]) -> None:
    assert only(graph_of_call(forward, (6, 8))).form == form


def test_norms_keep_their_constants_and_weights() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(8))
            self.shift = nn.Parameter(torch.rand(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    def scaled(norm: Norm, x: torch.Tensor) -> torch.Tensor:
        return norm.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def shifted(norm: Norm, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, True)
        return centred / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-6) * norm.scale + norm.shift

    rms = only(graph_of_call(scaled, (6, 8), layers=lambda: [Norm()]))
    assert (rms.form, rms.constants["eps"], rms.constants["dim"]) == ("rms_norm", 1e-6, -1)
    assert {operand.role: operand.source for operand in rms.operands}["weight"] == "self.layers.0.scale"
    layer = only(graph_of_call(shifted, (6, 8), layers=lambda: [Norm()]))
    assert layer.form == "layer_norm"
    assert {operand.role for operand in layer.operands} == {"input", "weight", "bias"}


def test_a_part_that_is_read_elsewhere_stays_outside_a_pattern() -> None:
    graph = graph_of_call(lambda x: (lambda e: (e / e.sum(1, keepdim=True), e))(torch.exp(x)), (6, 8))
    assert [region.form for region in graph.regions] == ["exp", "sum", "div"]
    # Another tensor under the root is no RMS norm.
    graph = graph_of_call(lambda x, y: x / torch.sqrt(y.pow(2).mean(1, keepdim=True) + 1e-5), (6, 8), (6, 8))
    assert [region.form for region in graph.regions] == ["pow", "mean", "add sqrt div"]


@pytest.mark.parametrize(
    ("forward", "forms"),
    [
        (lambda x, y: ((x - y) ** 2).mean(1), ["sub pow", "mean"]),  # not over all elements
        (lambda x, y: x / torch.norm(x, dim=1), ["norm", "div"]),  # by row, but divides the columns
        (lambda x, y: x + torch.sub(x, y.sigmoid(), alpha=2) * y, ["sigmoid sub mul add"]),
        (lambda x, y: torch.div(x, 1 + x.abs(), rounding_mode="floor"), ["abs add div"]),
        (lambda x, y: x - torch.logsumexp(y, 1, keepdim=True), ["logsumexp", "sub"]),
        (lambda x, y: x * torch.tanh(F.softplus(x, beta=2)), ["softplus tanh mul"]),
        (lambda x, y: torch.exp(x) / torch.exp(y).sum(0, keepdim=True), ["exp", "sum", "exp div"]),
    ],
)
def test_what_only_looks_like_a_spelling_is_none(forward: Callable[..., Any], forms: list[str]) -> None:
    assert [region.form for region in graph_of_call(forward, (6, 6), (6, 6)).regions] == forms


def test_a_softmax_in_another_dtype_is_no_attention() -> None:
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.softmax(q @ k.mT, dim=-1, dtype=torch.float64).float() @ v

    graph = graph_of_call(forward, (3, 5, 8), (3, 5, 8), (3, 5, 8))
    assert [region.form for region in graph.regions] == ["matmul", "softmax", "to", "matmul"]
    assert graph.region["softmax"].constants["dtype"] == "float64"


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.tril(torch.ones(5, 5)) == 0
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
    return F.dropout(F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1), 0.1, False) @ v


@pytest.mark.parametrize(
    "forward",
    [
        F.scaled_dot_product_attention,
        written_out,
        masked,
        lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q[0], k[0].mT) * 8**-0.5, -1), v[0]),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ],
)
def test_attention(forward: Callable[..., Any]) -> None:
    graph = graph_of_call(forward, (2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    region = next(region for region in graph.regions if region.form == "attention")
    roles = {operand.role: operand for operand in region.operands}
    assert {"query", "key", "value"} <= roles.keys()
    assert roles["key"].spec == roles["query"].spec
    assert region.constants["scale"] == pytest.approx(8**-0.5)
    assert region.consumers[region.outputs[0].value] == ("return",)
    assert ("mask" in roles) == (forward is masked)
