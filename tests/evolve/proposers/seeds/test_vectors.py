"""Products of a large matrix and one column become sums, which Inductor writes a kernel for."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kbevolve.evolve.proposers.seeds import vectors
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.seeds.vectors import with_vectors
from tests.evolve.proposers.seeds.dynamo import graph_of
from tests.evolve.proposers.seeds.test_seeds import problem_of

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_LEAST", 96)


def rewritten(function: Callable[..., Tensor], *inputs: Tensor) -> Any:
    graph, taken = graph_of(function, inputs)
    with torch.no_grad():
        found = with_vectors(graph, taken)
    return None if found is None else (found, taken)


COLUMN, BIAS = torch.linspace(-1, 2, 16)[:, None], torch.tensor([3.0])


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x @ COLUMN, (6, 16)),
        (lambda x: torch.mm(x, COLUMN), (6, 16)),
        (lambda x: x @ COLUMN, (2, 3, 16)),
        (lambda x: torch.mm(x.T, COLUMN), (16, 6)),
        (lambda x: F.linear(x, COLUMN.T), (2, 3, 16)),
        (lambda x: F.linear(x, COLUMN.T, BIAS).sigmoid(), (6, 16)),
        (lambda x: torch.addmm(BIAS, x, COLUMN), (6, 16)),
    ],
    ids=["matmul", "mm", "batches", "columns", "linear", "bias", "addmm"],
)
def test_a_sum_takes_the_place_of_a_product(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    found, taken = rewritten(function, x)
    names = {str(node.target) for node in found.graph.nodes}
    assert "aten.sum.dim_IntList" in names
    assert not names & {"aten.mm.default", "aten.matmul.default", "aten.linear.default", "aten.addmm.default"}
    (result,) = found(*taken)
    torch.testing.assert_close(result, function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ torch.cat([COLUMN, COLUMN], 1),
        lambda x: x[:5] @ COLUMN,
        lambda x: x.double() @ COLUMN.double(),
        lambda x: torch.addmm(BIAS, x, COLUMN, alpha=2),
        lambda x: x @ COLUMN.expand(6, 16, 1),
        lambda x: x.sum(-1),
    ],
    ids=["two columns", "small", "fp64", "scaled", "a column each", "no product"],
)
def test_other_products_stay(function: Callable[[Tensor], Tensor]) -> None:
    assert rewritten(function, torch.randn(6, 16)) is None


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(64, 1 << 16), torch.rand(1 << 16, 1)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_inductors_code_has_no_product_left(tmp_path: Any) -> None:
    with InductorProcess(problem_of(MODEL, tmp_path), "cpu", templates=True) as process:
        plain, changed = process.source(), process.for_templates() or ""
    assert "extern_kernels.mm(" in plain
    assert "ModelNew" in changed
    assert not re.search(r"extern_kernels\.\w+\(", changed)
    assert with_split_products(changed) is None
