"""Norms and softmax of long rows become one operator, and only where that computes the same."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.evolve.proposers.seeds import rows
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.rows import with_rows
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from tests.evolve.proposers.seeds.dynamo import graph_of
from tests.evolve.proposers.seeds.test_seeds import problem_of

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "WIDTHS", range(24, 97))
    monkeypatch.setattr(rows, "_LEAST", 96)


@pytest.fixture
def calls() -> Iterator[list[tuple[Any, ...]]]:
    """Kind, width, each and eps of each call of the operator, which torch's own functions compute here."""
    noted: list[tuple[Any, ...]] = []

    def computed(x: Tensor, weight: Any, bias: Any, kind: str, width: int, each: int, eps: float) -> Tensor:
        noted.append((kind, width, each, eps))
        all_rows = x.reshape(-1, width)
        mean, apart = all_rows.mean(1, keepdim=True), all_rows.var(1, keepdim=True, unbiased=False)
        found = {
            "softmax": lambda: all_rows.softmax(1),
            "log_softmax": lambda: all_rows.log_softmax(1),
            "normalise": lambda: (all_rows - mean) / (apart + eps).sqrt(),
            "over_mean": lambda: all_rows / all_rows.abs().mean(1, keepdim=True),
            "over_norm": lambda: all_rows / all_rows.square().sum(1, keepdim=True).sqrt(),
        }[kind]()
        if weight is not None:
            found = found.view(-1, weight.numel(), each) * weight.reshape(-1, 1) + bias.reshape(-1, 1)
        return found.view(x.shape)

    library = torch.library.Library("kbevolve", "FRAGMENT")
    with_rows(torch.fx.symbolic_trace(nn.Identity()), [torch.zeros(1)])  # defines the operator
    library.impl("rows", computed, "CPU")
    yield noted
    library._destroy()


def rewritten(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Any] | None:
    """The function, traced as torch.compile does, with the operator; None where there are no such rows."""
    graph, taken = graph_of(function, [x])
    with torch.no_grad():
        found = with_rows(graph, taken)
    return None if found is None else lambda: found(*taken)


WEIGHT, BIAS, MATRIX = torch.linspace(-2, 3, 6), torch.arange(6.0), torch.linspace(-1, 1, 24).view(6, 4)


@pytest.mark.parametrize(
    ("function", "shape", "call"),
    [
        (lambda x: x.softmax(-1), (4, 32), ("softmax", 32, 1, 0.0)),
        (lambda x: F.log_softmax(x, dim=2), (2, 3, 32), ("log_softmax", 32, 1, 0.0)),
        (lambda x: (x @ MATRIX.view(1, 24)).softmax(-1) @ MATRIX.view(24, 1), (5, 1), ("softmax", 24, 1, 0.0)),
        (lambda x: F.layer_norm(x, (6, 4), MATRIX, -MATRIX), (5, 6, 4), ("normalise", 24, 1, 1e-5)),
        (lambda x: F.layer_norm(x, (6, 4, 2)), (5, 6, 4, 2), ("normalise", 48, 1, 1e-5)),
        (lambda x: F.group_norm(x, 3, WEIGHT, BIAS, 1e-3), (5, 6, 4, 4), ("normalise", 32, 16, 1e-3)),
        (lambda x: F.instance_norm(x, weight=WEIGHT, bias=BIAS), (5, 6, 4, 8), ("normalise", 32, 32, 1e-5)),
        (lambda x: F.instance_norm(x), (5, 6, 4, 8), ("normalise", 32, 32, 1e-5)),
        (lambda x: x / x.abs().mean(dim=1, keepdim=True), (4, 33), ("over_mean", 33, 1, 0.0)),
        (lambda x: x / torch.norm(x, p=2, dim=-1, keepdim=True), (4, 33), ("over_norm", 33, 1, 0.0)),
    ],
    ids=[
        "softmax",
        "log_softmax",
        "between products",
        "layer",
        "plain layer",
        "group",
        "instance",
        "plain instance",
        "over mean",
        "over norm",
    ],
)
def test_the_operator_computes_the_same(
    calls: list[tuple[Any, ...]], function: Callable[[Tensor], Tensor], shape: tuple[int, ...], call: tuple[Any, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)) + 1
    run = rewritten(function, x)
    assert run is not None
    found = run()
    torch.testing.assert_close(found[0] if isinstance(found, tuple | list) else found, function(x))
    assert calls == [call]


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.softmax(0), torch.randn(32, 32)),
        (lambda x: x.softmax(-1), torch.randn(32, 32, dtype=torch.float64)),
        (lambda x: x.softmax(-1, dtype=torch.float64), torch.randn(32, 32)),
        (lambda x: x.softmax(-1), torch.randn(32, 23)),
        (lambda x: x.softmax(-1), torch.randn(32, 97)),
        (lambda x: x.softmax(-1), torch.randn(2, 32)),
        (lambda x: x.mT.softmax(-1), torch.randn(32, 32)),
        (lambda x: F.layer_norm(x, (32,), torch.ones(32)), torch.randn(32, 32)),
        (lambda x: F.instance_norm(x, WEIGHT, BIAS.exp(), use_input_stats=False), torch.randn(2, 6, 32)),
        (lambda x: x / x.abs().mean(dim=0, keepdim=True), torch.randn(32, 32)),
        (lambda x: x / x.abs().mean(dim=1), torch.randn(32, 32)),
        (lambda x: x / torch.norm(x, p=1, dim=-1, keepdim=True), torch.randn(32, 32)),
        (lambda x: x / (size := torch.norm(x, dim=-1, keepdim=True)) + size, torch.randn(32, 32)),
        (lambda x: x.exp() / torch.norm(x, dim=-1, keepdim=True), torch.randn(32, 32)),
        (lambda x: x.softmax(-1) + 1, torch.randn(32, 32)),
        (lambda x: x.sin().softmax(-1), torch.randn(32, 32)),
    ],
    ids=[str(number) for number in range(16)],
)
def test_what_it_does_not_compute_stays(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert rewritten(function, x) is None


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(8, 16, 192, 192)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_inductors_code_calls_the_template(tmp_path: Any) -> None:
    with InductorProcess(problem_of(MODEL, tmp_path), "cpu", templates=True) as process:
        plain, changed = process.source(), process.for_templates() or ""
    assert "kbevolve" not in plain.replace("kbevolve.", "")
    source = with_split_products(changed) or ""
    assert "(row_statistics if PRODUCT_0 else rows_by_library)(" in source
    assert "'normalise', 147456, 36864, 1e-05)" in source
    assert "split_pairs" not in source
