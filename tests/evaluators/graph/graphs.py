"""Graphs of tiny models for tests: made from a forward function, and run region by region beside the model."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kbevolve.evaluators.analysis.operations import count_operations
from kbevolve.evaluators.graph.execution import GraphRun, run
from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.tracer import trace
from tests.evaluators.graph.forms import compute, product_result


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
    tensors = [one.clone() for one in tree_leaves(inputs) if isinstance(one, torch.Tensor)]
    with torch.no_grad():
        check_records(graph, model, tensors)
        torch.manual_seed(1)
        answer = run(graph, model, tensors)
        torch.manual_seed(1)
        expected = [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, torch.Tensor)]
    assert len(answer) == len(expected)
    for one, other in zip(answer, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    if counted:
        assert graph.total("flops") == count_operations(lambda: model(*inputs)).total
    return graph


def check_records(graph: Graph, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Each region whose form has a meaning gives the same result from its record alone."""
    running = GraphRun(graph, model, inputs)
    for region in graph.regions:
        operands = {}
        for operand in region.operands:
            value, spec = running.value(operand.value), operand.spec
            operands[operand.role] = value.as_strided(spec.shape, spec.stride, value.storage_offset())
        result = next(iter(running.compute(region).values()))
        mine = compute(region, operands, result)
        if mine is not None:
            other = product_result(region.contraction, result) if region.contraction else result
            torch.testing.assert_close(mine.reshape(other.shape), other, equal_nan=True, rtol=1e-4, atol=1e-5)
        running.run(region)


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
