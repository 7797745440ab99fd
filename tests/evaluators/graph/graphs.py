"""Graphs of tiny models for tests: made from a forward function, and run region by region beside the model."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kbevolve.evaluators.analysis.operations import count_operations
from kbevolve.evaluators.graph.execution import run
from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.tracer import trace


class Made(nn.Module):
    """A model with some layers and a forward function of these and the inputs."""

    def __init__(self, forward: Callable[..., Any], layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.compute = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.compute(*self.layers, *inputs)


def graph_of(build: Callable[[], nn.Module], draw: Callable[[], Sequence[Any]], *, counted: bool = True) -> Graph:
    """The graph; it must give the model's own answer, and with `counted` have the operations that torch counts."""
    graph = cut(trace(build, draw, torch.float32))
    torch.manual_seed(0)
    model = build().eval()
    inputs = list(draw())
    with torch.no_grad():
        torch.manual_seed(1)
        answer = run(graph, model, [one.clone() for one in tree_leaves(inputs) if isinstance(one, torch.Tensor)])
        torch.manual_seed(1)
        expected = [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, torch.Tensor)]
    assert len(answer) == len(expected)
    for one, other in zip(answer, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    if counted:
        assert graph.total("flops") == count_operations(lambda: model(*inputs)).total
    return graph


def graph_of_call(
    forward: Callable[..., Any],
    *shapes: Sequence[int],
    layers: Callable[[], Sequence[nn.Module]] = list,
    counted: bool = True,
) -> Graph:
    """The graph of a function of random tensors of these shapes, behind the given layers."""
    build, draw = lambda: Made(forward, layers()), lambda: [torch.randn(*shape) for shape in shapes]
    return graph_of(build, draw, counted=counted)


def only(graph: Graph) -> Region:
    """The graph's one region."""
    assert [region.name for region in graph.regions] == [graph.regions[0].name]
    return graph.regions[0]
