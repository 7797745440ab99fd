"""Products of a matrix and one column in a traced graph, each as a sum, for which Inductor writes a kernel.

Such a product reads every number of the matrix once, so the memory bounds it, and tensor cores gain nothing. On pairs
of fp16 it would be read twice and written once, and its error grows with the number of products: of the 1,048,576 of
kernelbench:1/4 the sum was off by 1.7e-6 of its size, and the judge refused it. Inductor leaves it to a library, which
reached 85 % of the memory's speed there (one H200, 2026-11-29).
"""

from typing import Any

import torch
from torch.fx import GraphModule, Node

from kbevolve.evolve.proposers.seeds.aten import arguments_of, aten_graph, tensor_of

#: Fewest numbers of a matrix: what takes a few microseconds gains nothing.
_LEAST = 1 << 22
_aten = torch.ops.aten


def with_vectors(graph: GraphModule, inputs: list[Any]) -> GraphModule | None:
    """The graph of aten's operators with each such product of fp32 as a sum; None where there is none.

    Args:
        graph: from torch.compile, of a model in evaluation mode.
        inputs: its example inputs.
    """
    traced = aten_graph(graph, inputs)
    changed = False
    for node in list(traced.graph.nodes):
        if (operands := _operands(node)) is None or not _is_large(*operands):
            continue
        matrix, column = operands
        call = traced.graph.call_function
        with traced.graph.inserting_before(node):
            row = call(_aten.reshape.default, (column, [-1]))
            ours = call(_aten.sum.dim_IntList, (call(_aten.mul.Tensor, (matrix, row)), [-1], True))
            if (bias := _bias(node)) is not None:
                ours = call(_aten.add.Tensor, (ours, bias))
        ours.meta["val"] = tensor_of(node)
        node.replace_all_uses_with(ours)
        changed = True
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced if changed else None


def _operands(node: Node) -> tuple[Node, Node] | None:
    """The matrix and the column, of which a linear layer has the weight; None of another operator."""
    given = arguments_of(node) if isinstance(node.target, torch._ops.OpOverload) else {}
    match node.target:
        case _aten.mm.default:
            return given["self"], given["mat2"]
        case _aten.matmul.default:
            return given["self"], given["other"]
        case _aten.linear.default:
            return given["input"], given["weight"]
        case _aten.addmm.default if given["alpha"] == given["beta"] == 1:
            return given["mat1"], given["mat2"]
    return None


def _is_large(matrix: Node, column: Node) -> bool:
    left, right = tensor_of(matrix), tensor_of(column)
    one = right.dim() == 2 and left.dim() >= 2 and right.numel() == left.shape[-1]
    return one and left.dtype is right.dtype is torch.float32 and left.numel() >= _LEAST


def _bias(node: Node) -> Any:
    if node.target is _aten.addmm.default:
        return arguments_of(node)["self"]
    return arguments_of(node)["bias"] if node.target is _aten.linear.default else None
