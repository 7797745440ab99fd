"""Runs a graph on real tensors, region by region: the proof that the cut computes what the model computes."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch

from kbevolve.evaluators.graph.records import Graph, Node, Ref, Region, TorchConstant

#: A library may return other strides here than where the graph was traced; then a view is a copy.
_IN_PLACE_OF = {"aten.view.default": torch.ops.aten.reshape.default}


class GraphRun:
    """One run of a graph. Regions run in the graph's order; a value is freed after its last reader."""

    def __init__(self, graph: Graph, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        """Prepare to run on a model's own parameters, which stay as they are, and these inputs."""
        self._graph = graph
        self._device = next((tensor.device for tensor in (*inputs, *model.parameters())), torch.device("cpu"))
        trace = graph.trace
        self._calls = {node.name: self._prepared(node) for node in trace.nodes}
        self._values: dict[str, torch.Tensor] = dict(zip(trace.inputs, inputs, strict=True))
        for name in trace.parameters:
            self._values[name] = attrgetter(name.removeprefix("self."))(model)
        for name, elements in trace.literals.items():
            spec = trace.tensors[name]
            literal = torch.tensor(elements, dtype=getattr(torch, spec.dtype), device=self._device)
            self._values[name] = literal.reshape(spec.shape)
        self._kept = {trace.base(value)[0] for value in (*trace.outputs, *trace.written.values())}
        self._waiting = {
            value: {name for name in readers if name != "return"}
            for region in graph.regions
            for value, readers in region.consumers.items()
        }

    def run(self, region: Region) -> None:
        """Run a region whose operands exist."""
        self._values |= self.compute(region)
        for operand in region.operands:
            base = self._graph.trace.base(operand.value)[0]
            waiting = self._waiting.get(base)
            if waiting is not None:
                waiting.discard(region.name)
                if not waiting and base not in self._kept:
                    del self._values[base]
                    del self._waiting[base]

    def compute(self, region: Region) -> dict[str, torch.Tensor]:
        """The outputs of a region whose operands exist; nothing is kept."""
        inside: dict[str, torch.Tensor] = {}
        for name in region.nodes:
            inside |= self._call(name, inside)
        return {operand.value: inside[operand.value] for operand in region.outputs}

    def value(self, name: str, inside: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
        """A value that exists, or a view of one."""
        for known in (inside or {}, self._values):
            if name in known:
                return known[name]
        node = self._graph.trace.producer[name]
        assert node.view, f"{name} is read before its region has run"
        return self._call(node.name, inside or {})[name]

    def outputs(self) -> list[torch.Tensor]:
        """What the model returns, after all regions have run."""
        return [self.value(name) for name in self._graph.trace.outputs]

    def _call(self, name: str, inside: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        node, operator, positional, named = self._calls[name]
        result = operator(
            *(self._real(argument, inside) for argument in positional),
            **{key: self._real(argument, inside) for key, argument in named.items()},
        )
        results = result if isinstance(result, tuple | list) else (result,)
        return dict(zip(node.outputs, results, strict=True))

    def _prepared(self, node: Node) -> tuple[Node, Any, list[Any], dict[str, Any]]:
        """The node, its operator, and its arguments in the order and under the names that the operator takes."""
        namespace, packet, overload = node.op.split(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in operator._schema.arguments:
            argument: Any = node.arguments.get(parameter.name)
            if parameter.name == "device" and (not node.reads or not parameter.has_default_value()):
                argument = self._device
            elif parameter.name not in node.arguments and parameter.kwarg_only:
                continue
            if parameter.kwarg_only:
                named[parameter.name] = argument
            else:
                positional.append(argument)
        return node, _IN_PLACE_OF.get(node.op, operator), positional, named

    def _real(self, argument: Any, inside: Mapping[str, torch.Tensor]) -> Any:
        if isinstance(argument, Ref):
            return self.value(argument.value, inside)
        if isinstance(argument, TorchConstant):
            return getattr(torch, argument.torch)
        return [self._real(item, inside) for item in argument] if isinstance(argument, tuple) else argument


def run(graph: Graph, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that the model returns, computed region by region."""
    with torch.no_grad():
        execution = GraphRun(graph, model, inputs)
        for region in graph.regions:
            execution.run(region)
        return execution.outputs()
