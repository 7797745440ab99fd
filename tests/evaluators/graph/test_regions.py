"""The cut: families and their constants, prologues and epilogues, and what stays together."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.evaluators.graph.execution import run
from kbevolve.evaluators.graph.records import Family, TensorSpec
from tests.evaluators.graph.graphs import Made, graph_of, graph_of_call, only


@pytest.mark.parametrize(
    ("layer", "shape", "constants"),
    [
        (lambda: nn.Conv1d(4, 6, 3, stride=2, dilation=2), (2, 4, 20), {"stride": (2,), "dilation": (2,)}),
        (lambda: nn.Conv2d(4, 8, (3, 5), padding=(1, 2)), (2, 4, 12, 12), {"kernel": (3, 5), "padding": (1, 2)}),
        (lambda: nn.Conv2d(4, 8, 3, padding="same"), (2, 4, 12, 12), {"padding": (1, 1)}),
        (lambda: nn.Conv2d(4, 8, 4, padding="same"), (2, 4, 12, 12), {"padding": (1, 1), "padding_behind": (2, 2)}),
        (lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 12, 12), {"groups": 4, "depthwise": True}),
        (lambda: nn.Conv2d(4, 8, 3, groups=2), (2, 4, 12, 12), {"groups": 2, "depthwise": False}),
        (lambda: nn.Conv3d(3, 5, 3, padding=1), (2, 3, 6, 6, 6), {"padding": (1, 1, 1), "transposed": False}),
        (
            lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
            (2, 4, 5, 5),
            {"transposed": True, "stride": (2, 2), "output_padding": (1, 1), "groups": 2},
        ),
        (lambda: nn.ConvTranspose1d(4, 6, 3, dilation=3), (2, 4, 9), {"dilation": (3,), "transposed": True}),
        (lambda: nn.ConvTranspose3d(2, 3, (3, 5, 7)), (1, 2, 4, 4, 4), {"kernel": (3, 5, 7)}),
    ],
)  # fmt: skip
def test_convolutions(layer: Callable[[], nn.Module], shape: tuple[int, ...], constants: dict[str, Any]) -> None:
    region = only(graph_of_call(lambda conv, x: conv(x), shape, layers=lambda: [layer()]))
    assert region.family is Family.CONVOLUTION
    assert {name: region.constants.get(name) for name in constants} == constants
    assert [operand.role for operand in region.operands] == ["input", "weight", "bias"]


@pytest.mark.parametrize(
    ("family", "form", "forward"),
    [
        (Family.REDUCTION, "sum", lambda x: x.sum(1)),
        (Family.REDUCTION, "mean", lambda x: x.mean((2, 3), keepdim=True)),
        (Family.REDUCTION, "max", lambda x: torch.max(x, 1)[0]),
        (Family.REDUCTION, "argmin", lambda x: x.argmin(1)),
        (Family.SCAN, "cumsum", lambda x: torch.cumsum(x, 1)),
        (Family.SCAN, "cumprod", lambda x: torch.cumprod(x, 1)),
        (Family.LOSS, "mse_loss", lambda x: torch.mean((x - x.flip(0)) ** 2)),
        (Family.LOSS, "cross_entropy_loss", lambda x: F.cross_entropy(x[:, :, 0, 0], torch.tensor([1, 2]))),
        (Family.POOLING, "max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1)),
        (Family.POOLING, "avg_pool2d", lambda x: F.avg_pool2d(x, 2)),
        (Family.POOLING, "adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1)),
        (Family.NORM, "group_norm", lambda x: F.group_norm(x, 2)),
        (Family.NORM, "instance_norm", lambda x: F.instance_norm(x)),
        (Family.POINTWISE, "min", lambda x: torch.min(x, x[:1])),
        (Family.POINTWISE, "where", lambda x: torch.where(x > 0, x, 2 * x)),
        (Family.MOVEMENT, "cat", lambda x: torch.cat([x, x], 1)),
        (Family.MOVEMENT, "flip", lambda x: x.flip(0)),
    ],
)
def test_families(family: Family, form: str, forward: Callable[..., Any]) -> None:
    region = graph_of_call(forward, (2, 4, 8, 8)).regions[-1]
    assert (region.family, region.form.split()[-1]) == (family, form)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_layer_is_one_region(kind: str, bidirectional: bool) -> None:
    layer = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}[kind]
    graph = graph_of_call(
        lambda rnn, x: rnn(x)[0],
        (5, 3, 4),
        layers=lambda: [layer(4, 6, 2, bidirectional=bidirectional)],
    )
    region = graph.regions[-1]
    assert (region.family, region.form) == (Family.RECURRENCE, kind)
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind]
    ways = 2 if bidirectional else 1
    assert region.flops == 2 * 15 * ways * gates * 6 * ((4 + 6) + (6 * ways + 6))
    assert region.outputs[0].spec.shape == (5, 3, 6 * ways)


def test_pointwise_code_around_a_product_is_its_prologue_and_epilogue() -> None:
    graph = graph_of_call(
        lambda fc, x, y: torch.relu(fc(torch.tanh(x) * 2)) * 3 + y,
        (6, 8),
        (6, 10),
        layers=lambda: [nn.Linear(8, 10)],
    )
    before, product, after = graph.regions
    assert (before.form, product.form, after.form) == ("tanh mul", "linear", "relu mul add")
    assert (product.prologue, product.epilogue) == ((before.name,), (after.name,))
    assert product.operands[0].source == before.name
    assert after.consumers == {"add": ("return",)}
    assert {operand.source for operand in after.operands} == {product.name, "inputs_1"}
    assert product.bytes_read == 4 * (6 * 8 + 10 * 8 + 10)
    assert product.bytes_written == 4 * 6 * 10


def test_a_result_with_two_readers_has_no_epilogue() -> None:
    graph = graph_of_call(lambda a, b: (lambda c: torch.relu(c) + (c @ b))(a @ b), (8, 8), (8, 8))
    first = graph.region["matmul"]
    assert first.epilogue == ()
    assert first.consumers == {"matmul": ("pointwise", "matmul_1")}
    assert graph.region["matmul_1"].epilogue == ("pointwise",)


def test_pointwise_steps_with_another_region_between_stay_apart() -> None:
    # relu(x) feeds the product and the sum behind it: one region of both would have to run before and after it.
    graph = graph_of_call(lambda x, w: (lambda h: h + h @ w)(torch.relu(x)), (8, 8), (8, 8))
    assert [region.form for region in graph.regions] == ["relu", "matmul", "add"]


def test_pointwise_steps_joined_by_views_are_one_region() -> None:
    graph = graph_of_call(lambda x: torch.relu(torch.tanh(x).view(4, 12).t()) * 2, (6, 8))
    region = only(graph)
    assert region.form == "tanh relu mul"
    assert graph.regions[0].outputs[0].spec.shape == (12, 4)


def test_batch_norm_with_fixed_statistics_is_an_epilogue() -> None:
    layers = lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)]  # noqa: E731
    graph = graph_of_call(lambda conv, norm, x: torch.relu(norm(conv(x))), (2, 3, 8, 8), layers=layers)
    assert [region.form for region in graph.regions] == ["conv2d", "batch_norm relu"]
    assert graph.region["conv2d"].epilogue == ("pointwise",)
    alone = only(graph_of_call(lambda norm, x: norm(x), (2, 4, 8, 8), layers=lambda: [nn.BatchNorm2d(4)]))
    assert (alone.family, alone.constants["eps"]) == (Family.NORM, 1e-5)
    assert "running_var" in {operand.role for operand in alone.operands}


def test_operands_name_the_views_before_them() -> None:
    graph = graph_of_call(
        lambda fc, x: fc(x).view(2, 5, 2, 4).transpose(1, 2) @ x.view(2, 5, 2, 4).permute(0, 2, 3, 1),
        (2, 5, 8),
        layers=lambda: [nn.Linear(8, 8)],
    )
    left, right = graph.region["matmul"].operands
    assert (left.source, right.source) == ("linear", "inputs_0")
    assert [graph.trace.producer[name].kind for name in left.views] == ["view", "transpose"]
    assert left.spec == TensorSpec(shape=(2, 2, 5, 4), stride=(40, 4, 8, 1), dtype="float32")
    assert graph.region["matmul"].contraction.sizes == (4, 5, 5, 4)  # type: ignore[union-attr]


def test_work_in_place_is_rewritten() -> None:
    def forward(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(conv(x), inplace=True)
        y[:, 0] = 0
        y += x.mean()
        return y.mul_(2)

    graph = graph_of_call(forward, (2, 3, 8, 8), layers=lambda: [nn.Conv2d(3, 4, 3)])
    assert all(not node.op.endswith("_") for node in graph.trace.nodes)
    assert graph.regions[0].form == "conv2d"


def test_a_state_that_forward_replaces_is_an_output() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.ones(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.hidden = torch.tanh(self.hidden + x)
            return self.hidden * 2

    graph = graph_of(Stateful, lambda: [torch.randn(4)])
    assert graph.trace.inputs == ("x",)
    assert dict(graph.trace.written) == {"self.hidden": "tanh"}
    assert graph.regions[0].consumers == {"tanh": ("return",), "mul": ("return",)}


def test_several_inputs_and_outputs_of_any_structure() -> None:
    class Several(nn.Module):
        def forward(self, pair: list[torch.Tensor], flag: bool, factor: float) -> dict[str, torch.Tensor | None]:
            return {"sum": pair[0] + pair[1], "view": pair[0].t(), "none": None, "scaled": pair[0] * factor}

    graph = graph_of(Several, lambda: [[torch.randn(3, 4), torch.randn(3, 4)], True, 2.5])
    assert len(graph.trace.inputs) == 2
    assert graph.trace.takes == {"tuple": [{"list": [{"tensor": 0}, {"tensor": 1}]}, True, 2.5]}
    pairs = [["sum", {"tensor": 0}], ["view", {"tensor": 1}], ["none", None], ["scaled", {"tensor": 2}]]
    assert graph.trace.returns == {"dict": pairs}
    assert len(graph.trace.outputs) == 3


def test_random_numbers_and_unused_code() -> None:
    graph = graph_of_call(lambda x: (x.sum(1), x + torch.randn(4, 8))[1], (4, 8))
    assert [region.form for region in graph.regions] == ["randn", "add"]


def test_an_encoder_layer_is_taken_apart() -> None:
    graph = graph_of_call(
        lambda layer, x: layer(x),
        (2, 5, 8),
        layers=lambda: [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)],
    )
    forms = [region.form for region in graph.regions]
    assert forms.count("attention") == 1
    assert forms.count("linear") == 4
    assert forms.count("layer_norm") == 2


def test_a_gather_reads_no_more_than_it_writes() -> None:
    graph = graph_of(
        lambda: nn.Embedding(1000, 8),
        lambda: [torch.randint(0, 1000, (5,), generator=torch.Generator().manual_seed(1))],
    )
    region = only(graph)
    assert (region.family, region.form) == (Family.MOVEMENT, "embedding")
    assert region.bytes_read == 5 * 8 + 5 * 8 * 4


def test_a_pointwise_step_of_another_depth_joins_its_only_reader() -> None:
    # The sum behind the product is deeper than tanh(x), which nothing else reads.
    graph = graph_of_call(lambda x, w: torch.tanh(x) + torch.relu(x @ w), (8, 8), (8, 8))
    assert [region.form for region in graph.regions] == ["matmul", "tanh relu add"]


def test_a_graph_runs_where_a_library_returns_other_strides() -> None:
    """As on a GPU, whose convolutions may put channels last: what was a view is a copy there."""
    graph = graph_of_call(
        lambda conv, x: torch.relu_(conv(x)).flatten(1), (2, 3, 8, 8), layers=lambda: [nn.Conv2d(3, 4, 3)]
    )
    model = Made(lambda conv, x: torch.relu_(conv(x)).flatten(1), [nn.Conv2d(3, 4, 3)]).to(
        memory_format=torch.channels_last
    )  # type: ignore[call-overload]
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(run(graph, model, [x])[0], model(x))
