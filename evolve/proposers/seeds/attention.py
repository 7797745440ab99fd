"""Attention in a traced graph as one operator, for which Inductor then leaves a call that a template can take over.

Inductor fuses what is around products; the scores of an attention, one for each pair of query and key, still go to
memory between its two products. Here ``softmax(scale q kt + bias, masked) v`` becomes ``kbevolve::attention``, whether
it is written out, is torch's `scaled_dot_product_attention`, or is part of its `multi_head_attention_forward`.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kbevolve.evolve.proposers.seeds.aten import aten_graph, tensor_of

_SCHEMA = "(Tensor q, Tensor kt, Tensor v, Tensor? mask, Tensor? bias, float scale, bool causal, bool turned) -> Tensor"
#: Numbers of a row of q or v that fit into a tile.
_ROW = range(8, 129)
_aten = torch.ops.aten
_PRODUCTS = (_aten.matmul.default, _aten.bmm.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """The operands of one attention; `kt` is None where `k` is as long rows."""

    q: Node
    v: Node
    kt: Node | None = None
    k: Node | None = None
    mask: Node | None = None
    #: Whether the mask says which keys are seen, not which are not.
    seen: bool = False
    bias: Node | None = None
    scale: float = 1.0
    #: What the scores are multiplied by besides, a number for each row.
    factor: Node | None = None
    causal: bool = False


def with_attention(graph: GraphModule, inputs: list[Any]) -> GraphModule | None:
    """The graph of aten's operators with each fp32 attention as one; None where there is none.

    Args:
        graph: from torch.compile, of a model in evaluation mode; its compilation is over.
        inputs: its example inputs.
    """
    _define()
    traced = aten_graph(graph, inputs)
    found = 0
    for node in list(traced.graph.nodes):
        if (attention := _found(node)) is not None and _fits(attention, node):
            _replace(node, attention)
            found += 1
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced if found else None


def _define() -> None:
    """Register the operator once; nothing calls it, so it has no kernel."""
    if hasattr(torch.ops.kbevolve, "attention"):
        return
    torch.library.define("kbevolve::attention", _SCHEMA, tags=(torch.Tag.flexible_layout,))

    def shape(q: torch.Tensor, kt: torch.Tensor, v: torch.Tensor, *rest: object) -> torch.Tensor:
        *batch, heads, rows, _ = q.shape
        turned = bool(rest[-1])
        return q.new_empty((*batch, rows, heads, v.shape[-1]) if turned else (*q.shape[:-1], v.shape[-1]))

    torch.library.register_fake("kbevolve::attention", shape)


def _found(node: Node) -> _Attention | None:
    if node.target is _aten.scaled_dot_product_attention.default:
        return _whole(node)
    if node.target in _PRODUCTS:
        return _written_out(node)
    return None


def _whole(node: Node) -> _Attention | None:
    """torch's own operator."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False} | node.kwargs
    given |= dict(zip(names, node.args, strict=False))
    q, mask = given["query"], given["attn_mask"]
    if given["dropout_p"] or given.get("enable_gqa"):
        return None
    boolean = mask is not None and tensor_of(mask).dtype is torch.bool
    return _Attention(
        q=q,
        k=given["key"],
        v=given["value"],
        mask=mask if boolean else None,
        seen=True,
        bias=None if boolean else mask,
        scale=given.get("scale") or 1 / sqrt(tensor_of(q).shape[-1]),
        causal=bool(given["is_causal"]),
    )


def _written_out(node: Node) -> _Attention | None:
    """softmax of perhaps masked, shifted and scaled products, times v; steps backward from the last product."""
    weights, v = node.args
    if not isinstance(weights, Node) or not isinstance(v, Node):
        return None
    weights = _without_dropout(weights)
    if weights is None or weights.target is not _aten.softmax.int or len(weights.args) != 2:
        return None
    step: Any = weights.args[0]
    if weights.args[1] not in (-1, tensor_of(step).dim() - 1):
        return None
    mask, bias, scale, factor = None, None, 1.0, None
    while isinstance(step, Node) and len(step.users) == 1 and not step.kwargs:
        # Only the scores are scaled, not what is added to them.
        plain = scale == 1.0 and factor is None
        arguments: tuple[Any, ...] = step.args
        match (step.target, *arguments):
            case (_aten.masked_fill.Scalar, before, Node() as out, value) if value == -inf and mask is None and plain:
                mask = out
            case (_aten.add.Tensor, before, Node() as other) if bias is None and plain:
                bias = other
            case (_aten.mul.Tensor | _aten.mul.Scalar, before, float() | int() as number):
                scale *= number
            case (_aten.mul.Tensor, before, Node() as other) if factor is None and tensor_of(other).shape[-1:] == (1,):
                factor = other
            case (_aten.div.Tensor | _aten.div.Scalar, before, float() | int() as number):
                scale /= number
            case (target, Node() as q, Node() as kt) if target in _PRODUCTS:
                return _Attention(q=q, kt=kt, v=v, mask=mask, bias=bias, scale=scale, factor=factor)
            case _:
                return None
        step = before
    return None


def _without_dropout(node: Node) -> Node | None:
    """What a dropout that does nothing is given; None where others read what lies between."""
    while node.target is _aten.dropout.default and not node.args[2] and len(node.users) == 1:
        assert isinstance(node.args[0], Node)
        node = node.args[0]
    return node if len(node.users) == 1 else None


def _fits(found: _Attention, node: Node) -> bool:
    """Whether the operator stands for it: fp32, of one shape but for lengths, rows that fit into a tile."""
    q, v, out = tensor_of(found.q), tensor_of(found.v), tensor_of(node)
    keys = tensor_of(found.kt).mT if found.kt is not None else tensor_of(found.k) if found.k is not None else v
    operands = (q, keys, v)
    leading = {tuple(one.shape[:-2]) for one in operands}
    scores = (*q.shape[:-1], keys.shape[-2])
    extra = [tensor_of(one) for one in (found.mask, found.bias, found.factor) if one is not None]
    return (
        q.dim() in (3, 4)
        and len(leading) == 1
        and all(one.dtype is torch.float32 for one in operands)
        and out.shape == (*q.shape[:-1], v.shape[-1])
        and q.shape[-1] in _ROW
        and v.shape[-1] in _ROW
        and all(_expands(one, scores) for one in extra)
        and (found.mask is None or tensor_of(found.mask).dtype is torch.bool)
        and (found.bias is None or tensor_of(found.bias).dtype is torch.float32)
    )


def _expands(one: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor can be read as one of this shape."""
    return one.dim() <= len(shape) and all(
        size in (1, whole) for size, whole in zip(reversed(one.shape), reversed(shape), strict=False)
    )


def _replace(node: Node, found: _Attention) -> None:
    graph, mask, kt = node.graph, found.mask, found.kt
    turned = _turned(node)
    place = turned or node
    with graph.inserting_before(node):
        if found.k is not None:
            kt = graph.call_function(_aten.transpose.int, (found.k, -2, -1))
        if mask is not None and found.seen:
            mask = graph.call_function(_aten.logical_not.default, (mask,))
        q = found.q if found.factor is None else graph.call_function(_aten.mul.Tensor, (found.q, found.factor))
        arguments = (q, kt, found.v, mask, found.bias, float(found.scale), found.causal, turned is not None)
        ours = graph.call_function(torch.ops.kbevolve.attention.default, arguments)
    ours.meta["val"] = tensor_of(place).contiguous()
    place.replace_all_uses_with(ours)


def _turned(node: Node) -> Node | None:
    """What puts the heads of a result side by side, row by row, as the next layer reads them; None for nothing.

    A kernel can write them so, which saves a pass over the result.
    """
    match [(one.target, *one.args[1:]) for one in node.users]:
        case [(_aten.transpose.int, 1 | -3, 2 | -2) | (_aten.transpose.int, 2 | -2, 1 | -3)]:
            pass
        case [(_aten.permute.default, [0, 2, 1, 3])]:
            pass
        case _:
            return None
    (place,) = node.users
    if tensor_of(node).dim() != 4:
        return None
    copies = [
        one
        for one in place.users
        if one.target in (_aten.clone.default, _aten.contiguous.default) and tensor_of(one).is_contiguous()
    ]
    return copies[0] if copies and len(place.users) == 1 else place
