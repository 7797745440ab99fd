"""Norms and softmax of long rows in a traced graph, each as one operator, whose template reads a row once.

Inductor holds a row in the registers of one block. One that is longer it reads once for its statistics, and once more
for its result; the template has it in the registers of several blocks (`configs/templates/row_statistics.py`).

Only where rows lie in memory before and after in any case. Otherwise Inductor's kernel computes what comes before as
often as it reads, and what follows before it writes, and the operator would cost a pass more than it saves.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kbevolve.evolve.proposers.seeds.aten import arguments_of, aten_graph, is_call, tensor_of

_SCHEMA = "(Tensor x, Tensor? weight, Tensor? bias, str kind, int width, int each, float eps) -> Tensor"
#: Numbers of a row. Of fewer Inductor's second read comes from the cache. Of two million all programs share a row and
#: wait for each other: 5.9 ms, where two reads take 5.3 (group norm of kernelbench:1/35, one H200, 2026-11-28).
WIDTHS = range(8192, 1 << 19)
#: Fewest numbers in all: what takes a few microseconds gains nothing.
_LEAST = 1 << 22
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A function of each number of x and of two statistics of its row: `width` numbers that follow each other."""

    x: Node
    kind: str
    width: int
    weight: Node | None = None
    bias: Node | None = None
    #: How many numbers that follow each other share a weight.
    each: int = 1
    eps: float = 0.0


def with_rows(graph: GraphModule, inputs: list[Any]) -> GraphModule | None:
    """The graph of aten's operators with each such function of long fp32 rows as one; None where there is none.

    Args:
        graph: from torch.compile, or from `with_attention`.
        inputs: its example inputs.
    """
    _define()
    traced = aten_graph(graph, inputs)
    changed = False
    for node in list(traced.graph.nodes):
        if (rows := _found(node)) is not None and _fits(rows, node) and _is_apart(rows, node):
            with traced.graph.inserting_before(node):
                arguments = (rows.x, rows.weight, rows.bias, rows.kind, rows.width, rows.each, rows.eps)
                ours = traced.graph.call_function(torch.ops.kbevolve.rows.default, arguments)
            ours.meta["val"] = tensor_of(node).contiguous()
            node.replace_all_uses_with(ours)
            changed = True
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced if changed else None


def _define() -> None:
    """Register the operator once; nothing calls it, so it has no kernel."""
    if hasattr(torch.ops.kbevolve, "rows"):
        return
    torch.library.define("kbevolve::rows", _SCHEMA)
    torch.library.register_fake("kbevolve::rows", lambda x, *_: torch.empty_like(x))


def _found(node: Node) -> _Rows | None:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    match node.target:
        case _aten.softmax.int | _aten.log_softmax.int:
            return _softmax(node)
        case _aten.layer_norm.default | _aten.group_norm.default | _aten.instance_norm.default:
            return _norm(node)
        case _aten.div.Tensor:
            return _over_size(node)
    return None


def _softmax(node: Node) -> _Rows | None:
    given = arguments_of(node)
    shape = tensor_of(given["self"]).shape
    if given["dim"] not in (-1, len(shape) - 1) or given["dtype"] is not None:
        return None
    kind = "softmax" if node.target is _aten.softmax.int else "log_softmax"
    return _Rows(x=given["self"], kind=kind, width=shape[-1])


def _norm(node: Node) -> _Rows | None:
    given = arguments_of(node)
    x, each = given["input"], 1
    shape = tensor_of(x).shape
    if node.target is _aten.layer_norm.default:
        width = math.prod(given["normalized_shape"])
    else:
        width = each = math.prod(shape[2:])
        if node.target is _aten.group_norm.default:
            width *= shape[1] // given["num_groups"]
        elif not given["use_input_stats"]:
            return None
    weight, bias = given["weight"], given["bias"]
    if (weight is None) is not (bias is None):
        return None
    return _Rows(x=x, kind="normalise", width=width, weight=weight, bias=bias, each=each, eps=given["eps"])


def _over_size(node: Node) -> _Rows | None:
    """x over the mean of its magnitudes, or over its Euclidean norm, of each row."""
    x, size = node.args
    if not isinstance(x, Node) or not isinstance(size, Node) or len(size.users) > 1:
        return None
    match (size.target, *size.args):
        case (_aten.linalg_vector_norm.default, before, 2, [axis], True):
            kind = "over_norm"
        case (_aten.mean.dim, Node(target=_aten.abs.default, args=(before,)), [axis], True):
            kind = "over_mean"
        case _:
            return None
    shape = tensor_of(x).shape
    return _Rows(x=x, kind=kind, width=shape[-1]) if before is x and axis in (-1, len(shape) - 1) else None


def _is_apart(found: _Rows, node: Node) -> bool:
    """Whether the rows are given or written by a call, and the result is the model's or read by a call."""
    given = found.x.op in ("placeholder", "get_attr") or is_call(found.x)
    return given and all(user.op == "output" or is_call(user) for user in node.users)


def _fits(found: _Rows, node: Node) -> bool:
    x = tensor_of(found.x)
    return (
        x.dtype is tensor_of(node).dtype is torch.float32
        and x.is_contiguous()
        and found.width in WIDTHS
        and x.numel() >= _LEAST
        and found.width % found.each == 0
    )
