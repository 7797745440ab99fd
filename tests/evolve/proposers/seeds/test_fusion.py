"""Products and what follows them become one operator, and only where that computes the same."""

import ast
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.epilogues import MOST_EXTRAS, text_of
from kbevolve.evolve.proposers.seeds.fusion import MOST_OF_A_GROUP, Fused, with_epilogues
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import declared
from tests.evolve.proposers.seeds.dynamo import graph_of
from tests.evolve.proposers.seeds.test_attention import CONVOLUTIONS
from tests.evolve.proposers.seeds.test_seeds import problem_of

Tensor = torch.Tensor


class Block(nn.Module):
    """As in a ResNet, with work in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(6), nn.BatchNorm2d(6)])
        for norm in self.norms:
            nn.init.uniform_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        y = self.norms[1](self.second(y))
        y += 0.5
        return F.relu(y, inplace=True)


class Rows(nn.Module):
    """Linear layers of three axes, a switch by a mask, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 24), nn.Linear(24, 8, bias=False)
        self.scale = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        y = torch.where(y > 0, y * torch.sigmoid(y), -0.1 * y) * self.scale
        z = self.down(y)
        return z * 2 + z.clone().detach() + x


class Turned(nn.Module):
    """A transposed convolution, and a bias of each channel that is added by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.ConvTranspose2d(4, 5, 3, stride=2, padding=1, output_padding=1)
        self.shift = nn.Parameter(torch.randn(5, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(F.gelu(self.turned(x) + self.shift), min=-0.1, max=float("inf"))


class Batched(nn.Module):
    """Products of tensors, one of them turned."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.hardswish(torch.bmm(a, b.mT).div(3.0)) @ b


class Fresh(nn.Module):
    """What is read twice, and what is no number for each column, stays outside of the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        z = F.silu(self.second(y)) + y
        return (z @ y.mT) * y.sum(1, keepdim=True)


class Depthwise(nn.Module):
    """As in a MobileNet."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False)
        self.both, self.norm = nn.Conv2d(6, 9, 1), nn.BatchNorm2d(6)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.both(F.relu6(self.norm(self.each(x)))))


class Chain(nn.Module):
    """A product, and a function of its result."""

    def __init__(self, after: Callable[[Tensor], Tensor], weight: Tensor) -> None:
        super().__init__()
        self.after, self.weight = after, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x @ self.weight)


FUSED_FILES = (("product", "fused_products"), ("convolution", "fused_convolutions"), ("grouped", "fused_groups"))


def traced(model: nn.Module, inputs: list[Tensor]) -> tuple[Fused | None, list[Any]]:
    """The graph of torch.compile with products and their epilogues, and what it takes."""
    graph, taken = graph_of(model, inputs)
    with torch.no_grad():
        return with_epilogues(graph, taken), taken


def result(fused: Fused, taken: list[Any]) -> tuple[Tensor, list[int]]:
    """What the graph computes where torch computes its operators as a file of a kernel says, and their epilogues."""
    names: dict[str, Any] = {"torch": torch}
    exec(_after_gluon(text_of(fused.epilogues)), names)
    noted: list[int] = []

    def computed(by_library: str) -> Callable[..., Tensor]:
        def call(*given: Any) -> Tensor:
            noted.append(given[-1])
            answer: Tensor = names[by_library](*given)
            return answer

        return call

    library = torch.library.Library("kbevolve", "FRAGMENT")
    try:
        for name, file in FUSED_FILES:
            exec(_by_library(template(file)), names)
            library.impl(name, computed(f"fused_{name}_by_library"), "CPU")
        with torch.no_grad():
            return fused.graph(*taken)[0], noted
    finally:
        library._destroy()


def _after_gluon(text: str) -> str:
    """Epilogues without the function for a template, which needs Triton."""
    return "\n".join(
        ast.unparse(node) for node in ast.parse(text).body if getattr(node, "name", None) != "split_epilogue"
    )


def _by_library(text: str) -> str:
    """The function of a template that calls the library."""
    (found,) = [node for node in ast.parse(text).body if getattr(node, "name", "").endswith("_by_library")]
    return ast.unparse(found)


@pytest.mark.parametrize(
    ("model", "inputs", "epilogues"),
    [
        (Block(), [torch.randn(2, 6, 9, 7)], [1, 2]),
        (Rows(), [torch.randn(3, 5, 8)], [1, 2]),
        (Turned(), [torch.randn(2, 4, 6, 5)], [1]),
        (Depthwise(), [torch.randn(2, 6, 9, 8)], [1, 2]),
        (Batched(), [torch.randn(3, 4, 6), torch.randn(3, 6, 6)], [1]),
        (Fresh(), [torch.randn(4, 8)], [1, 2]),
        (Chain(lambda y: y.add_(y.sigmoid_()), torch.randn(4, 6)), [torch.randn(5, 4)], [1]),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=4)), [torch.randn(2, 3, 9, 9)], [0, 0]),
    ],
    ids=["block", "rows", "turned", "depthwise", "batched", "fresh", "in place", "biases"],
)
def test_products_are_fused_with_what_follows_them(
    model: nn.Module, inputs: list[Tensor], epilogues: list[int]
) -> None:
    model.eval()
    fused, taken = traced(model, inputs)
    assert fused is not None
    found, noted = result(fused, taken)
    with torch.no_grad():
        torch.testing.assert_close(found, model(*inputs))
    assert noted == epilogues
    assert len(fused.epilogues) == len(set(epilogues) - {0})


def test_all_of_a_chain_is_in_its_epilogue() -> None:
    fused, _ = traced(Rows().eval(), [torch.randn(3, 5, 8)])
    assert fused is not None
    first, second = fused.epilogues
    assert [line.partition(" = ")[0] for line in first.gluon] == ["y0", "y1", "y2", "y3", "y4", "x0", "y5", "value"]
    load = "x0 = gl.load(e0 + at, mask=inside, other=0.0)"
    assert second.gluon == (
        "y0 = value * 2.0",
        "y1 = value",
        "y2 = y1",
        "y3 = y0 + y2",
        load,
        "y4 = y3 + x0",
        "value = y4",
    )
    nodes = [str(node.target) for node in fused.graph.graph.nodes if node.op == "call_function"]
    assert [name for name in nodes if "aten.t." not in name] == 2 * ["kbevolve.product.default"]


def test_layers_that_compute_the_same_share_an_epilogue() -> None:
    layers = [nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)) for _ in range(3)]
    fused, taken = traced(nn.Sequential(*layers).eval(), [torch.randn(2, 4, 5, 5)])
    assert fused is not None
    assert len(fused.epilogues) == 1
    assert result(fused, taken)[1] == [1, 1, 1]


def test_the_template_takes_the_groups_that_are_fused() -> None:
    assert f"weight[0].numel() <= {MOST_OF_A_GROUP} " in template("direct_convolution")


EXTRAS = [torch.randn(6) for _ in range(MOST_EXTRAS + 1)]


@pytest.mark.parametrize(
    ("after", "dtype"),
    [
        (lambda y: y, torch.float32),
        (lambda y: y.softmax(1), torch.float32),
        (lambda y: torch.relu(y), torch.float64),
        (lambda y: torch.relu(y) if y.shape[0] == 1 else y.T.contiguous(), torch.float32),
        (lambda y: y + torch.ones(5, 1), torch.float32),
        (lambda y: y.relu() + F.dropout(y, 0.5), torch.float32),
        (lambda y: (y.view(-1).relu_(), torch.tanh(y))[1], torch.float32),
        (lambda y: y + torch.max(torch.ones(5, 6), dim=0)[0].max() * y.shape[0] + y.double(), torch.float32),
        (lambda y: torch.max(F.avg_pool1d(y[:, None], 2)[:, 0], dim=1)[0], torch.float32),
    ],
    ids=["nothing", "softmax", "fp64", "turned", "rows", "random", "view in place", "two dtypes", "pair of results"],
)
def test_what_cannot_be_in_an_epilogue_stays(after: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    fused, _ = traced(Chain(after, torch.randn(4, 6, dtype=dtype)), [torch.randn(5, 4, dtype=dtype)])
    assert fused is None


@pytest.mark.parametrize(
    "model",
    [nn.Conv2d(3, 8, 3, bias=False), nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2)), nn.Linear(9, 8)],
    ids=["no bias", "a pool reads the result", "the library adds it"],
)
def test_a_bias_is_added_where_that_saves_a_pass(model: nn.Module) -> None:
    assert traced(model.eval(), [torch.randn(2, 3, 9, 9)])[0] is None


def test_an_epilogue_reads_no_more_tensors_than_kernels_take() -> None:
    def times(count: int) -> Callable[[Tensor], Tensor]:
        return lambda y: reduce(torch.mul, EXTRAS[:count], y)

    inputs = [torch.randn(5, 4)]
    model = Chain(times(MOST_EXTRAS), torch.randn(4, 6))
    fused, taken = traced(model, inputs)
    assert fused is not None
    assert [epilogue.extras for epilogue in fused.epilogues] == [MOST_EXTRAS]
    torch.testing.assert_close(result(fused, taken)[0], model(*inputs))
    assert traced(Chain(times(MOST_EXTRAS + 1), torch.randn(4, 6)), inputs)[0] is None


@pytest.mark.parametrize(
    "after", [torch.sum, lambda y: F.layer_norm(y, (6,)), lambda y: y.softmax(1).T, lambda y: y.cumsum(0)]
)
def test_what_a_kernel_of_inductors_reads_anyway_stays_there(after: Callable[[Tensor], Tensor]) -> None:
    model = Chain(lambda y: after(torch.sigmoid(y) * y), torch.randn(4, 6))
    assert traced(model, [torch.randn(5, 4)])[0] is None


def test_a_chain_whose_only_reader_is_a_chain_that_stays_does_so_too() -> None:
    first, second = torch.randn(4, 6), torch.randn(4, 6)

    def forward(x: Tensor, reduced: bool) -> Tensor:
        z = torch.relu(x @ first)
        y = torch.sigmoid(x @ second) + z  # reads the first chain
        return y.sum() if reduced else y

    inputs = [torch.randn(5, 4)]
    written, _ = traced(Chain(lambda x: forward(x, False), torch.eye(4)), inputs)
    assert written is not None
    assert traced(Chain(lambda x: forward(x, True), torch.eye(4)), inputs)[0] is None


@pytest.mark.slow
def test_inductors_code_calls_the_fused_template(tmp_path: Path) -> None:
    with InductorProcess(problem_of(CONVOLUTIONS, tmp_path), "cpu", templates=True) as process:
        assert process.source()
        fused = process.fused() or ""
    assert fused.count("torch.ops.kbevolve.convolution.default(") == 2
    assert "cpp_fused" not in fused  # nothing is left for a kernel of Inductor's
    source = with_split_products(fused)
    assert source is not None
    for number in (0, 1):
        assert source.count(f"(fused_gathered if PRODUCT_{number} == 2 else ") == 1
        assert source.count(f"fused_convolution if PRODUCT_{number} else fused_convolution_by_library)") == 1
    assert {"PRODUCT_0", "PRODUCT_1", "CONV_N"} <= {one.name for one in declared(source)}
    assert source.count("def split_epilogue(") == 1
    assert source.index("from triton.experimental import gluon") < source.index("def split_epilogue(")
