"""A graph of torch.compile as one of aten's operators, which are whole: linear layers, convolutions, norms."""

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

_aten = torch.ops.aten
#: What Inductor leaves to a library in fp32: products, convolutions and transposed ones.
PRODUCTS = (_aten.linear.default, _aten.matmul.default, _aten.mm.default, _aten.bmm.default, _aten.addmm.default)
CONVOLUTIONS = (_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default)
TRANSPOSED = (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input)


def aten_graph(graph: GraphModule, inputs: list[Any]) -> GraphModule:
    """The graph on fake tensors, without nodes that nothing reads.

    Args:
        graph: from torch.compile, of a model in evaluation mode; its compilation is over.
        inputs: its example inputs.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(one, static_shapes=True) if isinstance(one, torch.Tensor) else one for one in inputs]
        traced: GraphModule = make_fx(graph, pre_dispatch=True)(*fake)
    _write_numbers(traced)
    # The weights that `multi_head_attention_forward` averages are often unused.
    traced.graph.eliminate_dead_code()
    return traced


def _write_numbers(traced: GraphModule) -> None:
    """Write numbers that forward() makes tensors of into the graph; Inductor's code would expect them from outside."""
    for node in traced.graph.find_nodes(op="call_function", target=_aten.lift_fresh_copy.default):
        (held,) = node.all_input_nodes
        number = getattr(traced, str(held.target), None) if held.op == "get_attr" else None
        if not isinstance(number, torch.Tensor) or number.dim():
            continue
        form: dict[str, Any] = {"dtype": number.dtype, "device": number.device}
        with traced.graph.inserting_before(node):
            written = traced.graph.call_function(_aten.full.default, ([], number.item()), form)
        written.meta.update(node.meta)
        node.replace_all_uses_with(written)
        traced.graph.erase_node(node)
        traced.graph.erase_node(held)
        delattr(traced, str(held.target))  # all that the module holds becomes an argument of Inductor's code


def is_call(node: Node) -> bool:
    """Whether Inductor leaves a call of a library or of a template, which reads and writes memory."""
    ours = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "kbevolve"
    return ours or node.target in (*PRODUCTS, *CONVOLUTIONS, *TRANSPOSED)


def tensor_of(node: Node) -> torch.Tensor:
    """The fake tensor that a node of such a graph computes."""
    value: torch.Tensor = node.meta["val"]
    return value


def arguments_of(node: Node) -> Mapping[str, Any]:
    """Every argument of a node's operator by name."""
    assert isinstance(node.target, torch._ops.OpOverload)
    parameters = node.target._schema.arguments
    given = dict(zip((one.name for one in parameters), node.args, strict=False)) | node.kwargs
    return {one.name: given.get(one.name, one.default_value) for one in parameters}
