"""Products and convolutions of a traced graph with what follows them element by element, each as one operator.

Inductor leaves a product to a library, and reads and writes the whole result once more for an activation, a norm with
fixed statistics or a residual. Here such a chain becomes `kbevolve::product` or `kbevolve::convolution`, for which
Inductor leaves a call; a template computes the chain, its epilogue, before it writes the result.

Only where that saves a pass: where the chain's result is written anyway, for the caller or for another product. What
feeds a sum, a norm or a softmax stays theirs. Their kernel reads the product's result in any case, and tensor cores
would wait for the chain: on an H200 the product, swish and bias before the group norm of KernelBench's 2/37 took 2.02
ms as one kernel and 1.69 ms apart (2026-11-25).
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from kbevolve.evolve.proposers.seeds.aten import (
    CONVOLUTIONS,
    PRODUCTS,
    TRANSPOSED,
    arguments_of,
    aten_graph,
    is_call,
    tensor_of,
)
from kbevolve.evolve.proposers.seeds.epilogues import Epilogue, EpilogueChain, followed

_OPERATORS = {
    "product": "(Tensor a, Tensor b, Tensor? bias, Tensor[] extras, int epilogue) -> Tensor",
    "convolution": "(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
    "bool transposed, int[] output_padding, Tensor[] extras, int epilogue) -> Tensor",
    "grouped": "(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups, "
    "Tensor[] extras, int epilogue) -> Tensor",
}
#: Numbers of a filter of a convolution in groups, at most: as `direct_fits` of the template has it.
MOST_OF_A_GROUP = 128
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A graph with products as operators, and their epilogues: operators name them by numbers from 1, or have 0."""

    graph: GraphModule
    epilogues: tuple[Epilogue, ...]


def with_epilogues(graph: GraphModule, inputs: list[Any]) -> Fused | None:
    """The graph of aten's operators with each fp32 product and what follows it as one, or a convolution and its bias.

    None where there is neither.

    Args:
        graph: from torch.compile, of a model in evaluation mode; or from `attention.with_attention`.
        inputs: its example inputs.
    """
    _define()
    traced = aten_graph(graph, inputs)
    _without_work_in_place(traced.graph)
    if any(_writes(node) for node in traced.graph.nodes):
        return None
    kept: set[str] = set()
    while True:  # a chain that is kept as it was may have been another one's reader
        copied, epilogues = deepcopy(traced.graph), list[Epilogue]()
        made = _replace_chains(copied, epilogues, kept)
        useless = {name for name, ours in made.items() if not _is_written(ours)}
        if not useless:
            return Fused(graph=GraphModule(traced, copied), epilogues=tuple(epilogues)) if made else None
        kept |= useless


def _replace_chains(graph: Graph, epilogues: list[Epilogue], kept: set[str]) -> dict[str, Node]:
    """Put our operators in the places of all chains whose products are not `kept`: the operators by their products.

    `epilogues` takes what they compute.
    """
    made: dict[str, Node] = {}
    for product in list(graph.nodes):
        axis = _column_axis(product) if product.name not in kept else None
        chain = (followed(product, axis) or _bias_alone(product, axis)) if axis is not None else None
        if chain is None:
            continue
        if chain.steps and (epilogue := chain.epilogue()) not in epilogues:
            epilogues.append(epilogue)
        number = epilogues.index(chain.epilogue()) + 1 if chain.steps else 0
        made[product.name] = _replace(chain, number)
        graph.eliminate_dead_code()
    return made


def _bias_alone(product: Node, axis: int) -> EpilogueChain | None:
    """A convolution that nothing follows: Inductor's library adds no bias, which takes a pass of its own."""
    has_bias = product.target not in PRODUCTS and arguments_of(product)["bias"] is not None
    return EpilogueChain(product, axis) if has_bias else None


def _is_written(node: Node) -> bool:
    """Whether a result must be in memory as it is: for the caller, or for a product, which no kernel computes in."""
    return any(
        user.op == "output" or is_call(user) or (not _is_fresh(user) and _is_written(user)) for user in node.users
    )


def _define() -> None:
    """Register the operators once; nothing calls them, so they have no kernels."""
    if hasattr(torch.ops.kbevolve, "product"):
        return
    for name, schema in _OPERATORS.items():
        torch.library.define(f"kbevolve::{name}", schema, tags=(torch.Tag.needs_fixed_stride_order,))

    def of_product(a: torch.Tensor, b: torch.Tensor, *_: object) -> torch.Tensor:
        return a.new_empty((*a.shape[:-1], b.shape[-1]))

    def of_convolution(x: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
        *geometry, _, _ = rest
        return x.new_empty(_aten.convolution.default(x, weight, bias, *geometry, 1).shape)

    def of_groups(x: torch.Tensor, weight: torch.Tensor, bias: Any, *rest: Any) -> torch.Tensor:
        stride, padding, dilation, groups, _, _ = rest
        none = [0] * len(stride)
        found = _aten.convolution.default(x, weight, bias, stride, padding, dilation, False, none, groups)
        return x.new_empty(found.shape)

    torch.library.register_fake("kbevolve::product", of_product)
    torch.library.register_fake("kbevolve::grouped", of_groups)
    torch.library.register_fake("kbevolve::convolution", of_convolution)


def _without_work_in_place(graph: Graph) -> None:
    """Write ``relu_(x)`` as ``relu(x)`` where x is a fresh result that nothing else reads."""
    for node in graph.nodes:
        if not _writes(node) or not node.args or not isinstance(node.args[0], Node):
            continue
        source = node.args[0]
        name, overload = str(node.target).split(".")[1:]
        operator = getattr(getattr(_aten, name.removesuffix("_"), None), overload, None)
        if operator is not None and name.endswith("_") and len(source.users) == 1 and _is_fresh(source):
            node.target = operator


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_fresh(node: Node) -> bool:
    """Whether a node makes a tensor of its own, of which nothing else is a view."""
    return isinstance(node.target, torch._ops.OpOverload) and all(
        result.alias_info is None for result in node.target._schema.returns
    )


def _column_axis(node: Node) -> int | None:
    """The axis of columns in the result of a product or a convolution that a template computes; None for others."""
    if node.target not in (*PRODUCTS, *CONVOLUTIONS, *TRANSPOSED):
        return None
    result, tensors = tensor_of(node), [tensor_of(one) for one in node.all_input_nodes]
    if not result.is_contiguous() or not result.numel():
        return None
    if any(one.dtype is not torch.float32 for one in (result, *tensors)):
        return None
    if node.target in PRODUCTS:
        left, right = (tensor_of(one) for one in _operands(node))
        one_by_one = left.dim() == right.dim() == 3 and left.shape[0] == right.shape[0]
        scaled = node.target is _aten.addmm.default and node.kwargs
        whole = right.dim() == 2 and left.dim() >= 2
        return result.dim() - 1 if (whole or one_by_one) and left.numel() and not scaled else None
    given = arguments_of(node)
    few = node.target in CONVOLUTIONS and tensors[1][0].numel() <= MOST_OF_A_GROUP
    covered = (given["groups"] == 1 or few) and not isinstance(given["padding"], str)
    images = tensors[0].dim() == tensors[1].dim() and all(one.is_contiguous() for one in tensors[:2])
    return 1 if covered and images else None


def _operands(product: Node) -> tuple[Node, Node]:
    """What is multiplied; the weight of a linear layer as [N, K]."""
    left, right = product.args[1:3] if product.target is _aten.addmm.default else product.args[:2]
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    return left, right


def _replace(chain: EpilogueChain, epilogue: int) -> Node:
    """Put our operator in the place of a chain's result, and return it."""
    product, last = chain.product, chain.last
    graph = product.graph
    with graph.inserting_before(last):
        if product.target in PRODUCTS:
            left, right = _operands(product)
            bias = product.args[0] if product.target is _aten.addmm.default else None
            if product.target is _aten.linear.default:
                bias = arguments_of(product)["bias"]
                right = graph.call_function(_aten.t.default, (right,))
            arguments: tuple[Any, ...] = (left, right, bias, chain.extras, epilogue)
            ours = graph.call_function(torch.ops.kbevolve.product.default, arguments)
        else:
            given = arguments_of(product)
            turned = product.target in TRANSPOSED
            dims = tensor_of(product).dim() - 2
            places = [_each(given[name], dims) for name in ("stride", "padding", "dilation")]
            added = _each(given["output_padding"], dims) if turned else dims * [0]
            own = (given["input"], given["weight"], given["bias"], *places)
            then = (chain.extras, epilogue)
            if given["groups"] == 1:
                ours = graph.call_function(torch.ops.kbevolve.convolution.default, (*own, turned, added, *then))
            else:
                ours = graph.call_function(torch.ops.kbevolve.grouped.default, (*own, given["groups"], *then))
    ours.meta["val"] = tensor_of(last)
    last.replace_all_uses_with(ours)
    return ours


def _each(value: Any, dims: int) -> list[int]:
    """A number for each dimension; schemas allow one for all."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * dims if len(numbers) == 1 else numbers
