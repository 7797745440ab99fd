"""A trace as plain values for JSON, and back: what the tracing process writes and the judge's process reads."""

from collections.abc import Mapping
from typing import Any

from kbevolve.evaluators.graph.records import Argument, Node, Ref, TensorSpec, TorchConstant, Trace, UntraceableError


def to_tree(trace: Trace) -> dict[str, Any]:
    """Lists, dictionaries, strings and numbers (infinities among them)."""
    return {
        "inputs": list(trace.inputs),
        "outputs": list(trace.outputs),
        "written": dict(trace.written),
        "takes": trace.takes,
        "returns": trace.returns,
        "nodes": [
            [node.name, node.op, _plain_each(node.arguments), list(node.outputs), node.view, node.pointwise]
            for node in trace.nodes
        ],
        "literals": {name: list(elements) for name, elements in trace.literals.items()},
        "tensors": {name: [list(spec.shape), list(spec.stride), spec.dtype] for name, spec in trace.tensors.items()},
    }


def from_tree(tree: Any) -> Trace:
    """The trace that `to_tree` wrote; UntraceableError for anything else."""
    try:
        return Trace(
            inputs=tuple(tree["inputs"]),
            outputs=tuple(tree["outputs"]),
            written=dict(tree["written"]),
            takes=tree["takes"],
            returns=tree["returns"],
            nodes=tuple(
                Node(
                    name=name,
                    op=op,
                    arguments={key: _argument(value) for key, value in arguments.items()},
                    outputs=tuple(outputs),
                    view=view,
                    pointwise=pointwise,
                )
                for name, op, arguments, outputs, view, pointwise in tree["nodes"]
            ),
            literals={name: tuple(elements) for name, elements in tree["literals"].items()},
            tensors={
                name: TensorSpec(shape=tuple(shape), stride=tuple(stride), dtype=dtype)
                for name, (shape, stride, dtype) in tree["tensors"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UntraceableError("the tracing process wrote no trace") from None


def _plain_each(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    return {name: _plain(argument) for name, argument in arguments.items()}


def _plain(argument: Argument) -> Any:
    if isinstance(argument, Ref):
        return {"value": argument.value}
    if isinstance(argument, TorchConstant):
        return {"torch": argument.torch}
    return [_plain(item) for item in argument] if isinstance(argument, tuple) else argument


def _argument(value: Any) -> Argument:
    if isinstance(value, dict):
        return Ref(value["value"]) if "value" in value else TorchConstant(value["torch"])
    return tuple(map(_argument, value)) if isinstance(value, list) else value
