"""Records of a traced model and of its regions: plain values, frozen, without torch.

A value is a tensor by name. Inputs have the names of forward()'s arguments; parameters, buffers and tensor attributes
have the name by which forward() reaches them ("self.fc.weight"); results have the name of their node, with an index
where a node has several ("max_1[0]").
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

from kbevolve.configs.errors import KBEvolveError


class UntraceableError(KBEvolveError):
    """The reference has no graph; the message says why, in one line. The problem can be judged all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor without its data."""

    shape: tuple[int, ...]
    #: In elements.
    stride: tuple[int, ...]
    #: Name without "torch.", e.g. "float32".
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements, those of expanded axes counted as often as they appear."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements: an expanded axis (stride 0) counts once."""
        distinct = math.prod(
            size if stride else min(size, 1) for size, stride in zip(self.shape, self.stride, strict=True)
        )
        bits = re.search(r"\d+", self.dtype)  # "bfloat16", "float8_e4m3fn", "complex64"; bool has none
        return distinct * (int(bits[0]) // 8 if bits else 1)

    @property
    def swapped(self) -> "TensorSpec":
        """The last two axes exchanged."""
        order = [*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2]
        return TensorSpec(
            shape=tuple(self.shape[axis] for axis in order),
            stride=tuple(self.stride[axis] for axis in order),
            dtype=self.dtype,
        )


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a tensor: the name of a value."""

    value: str


@dataclass(frozen=True, slots=True)
class TorchConstant:
    """An argument that torch names: a dtype or a memory format, e.g. "float32" for `torch.float32`."""

    torch: str


#: An argument of an operator.
Argument: TypeAlias = "bool | int | float | str | Ref | TorchConstant | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One call of an ATen operator."""

    name: str
    #: e.g. "aten.linear.default".
    op: str
    #: Every argument of the operator's schema by name, in order; defaults are written out. Devices are left out.
    arguments: Mapping[str, Argument]
    #: Values.
    outputs: tuple[str, ...]
    #: Whether the outputs are views of the first argument, which cost nothing.
    view: bool = False
    #: Whether each element of the output needs only the elements at its place.
    pointwise: bool = False

    @property
    def kind(self) -> str:
        """``linear`` for "aten.linear.default"."""
        return self.op.split(".")[1]

    @property
    def reads(self) -> tuple[str, ...]:
        """The values among the arguments, in order."""
        return refs(tuple(self.arguments.values()))


def refs(argument: Argument) -> tuple[str, ...]:
    """The values in an argument, in order."""
    if isinstance(argument, tuple):
        return tuple(value for item in argument for value in refs(item))
    return (argument.value,) if isinstance(argument, Ref) else ()


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a model computes, one operator after another, for inputs of fixed shapes. Nothing is done in place."""

    #: The tensors of get_inputs(), in order.
    inputs: tuple[str, ...]
    #: Values that forward() returns, and those of the state or the inputs that it replaces: name -> new value.
    outputs: tuple[str, ...]
    written: Mapping[str, str]
    #: The arguments of forward() and its result as `worker.values.pack` writes them.
    #: Tensors are numbered as in `inputs` and `outputs`.
    takes: Any
    returns: Any
    nodes: tuple[Node, ...]
    #: Small tensors that forward() makes from numbers: value -> the elements.
    literals: Mapping[str, tuple[float, ...]]
    #: Every value.
    tensors: Mapping[str, TensorSpec]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The values that are parameters, buffers or tensor attributes."""
        return tuple(value for value in self.tensors if value.startswith("self."))

    @cached_property
    def producer(self) -> Mapping[str, Node]:
        """Value -> the node that computes it."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value -> the nodes that read it."""
        found: dict[str, list[Node]] = {value: [] for value in self.tensors}
        for node in self.nodes:
            for value in dict.fromkeys(node.reads):
                found[value].append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    def base(self, value: str) -> tuple[str, tuple[str, ...]]:
        """The value that this one is a view of (or itself), and the views between, the first applied first."""
        views: list[str] = []
        while (node := self.producer.get(value)) and node.view:
            views.insert(0, node.name)
            value = node.reads[0]
        return value, tuple(views)


class Family(StrEnum):
    """What a region computes; each family has templates of its own."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RECURRENCE = "recurrence"
    NORM = "norm"  # softmax, layer, group, batch, instance, RMS norms, division by a norm
    REDUCTION = "reduction"  # sum, mean, max, arg, any, logsumexp
    SCAN = "scan"  # cumsum, cumprod
    LOSS = "loss"
    POOLING = "pooling"
    POINTWISE = "pointwise"
    MOVEMENT = "movement"  # copies, gathers, joins, new tensors
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor as a region reads or writes it."""

    #: "input", "weight", "bias", "left", "right", "query", …; for pointwise regions "0", "1", …
    role: str
    value: str
    spec: TensorSpec
    #: The graph's input, the parameter ("self.fc.weight") or the region that it belongs to.
    source: str
    #: The nodes of the views between the source's own tensor and this one.
    views: tuple[str, ...] = ()
    #: Facts about its values, seen in every draw: "diagonal", "lower triangular", "upper triangular", "symmetric".
    structure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An index of a product: its size, and the strides that it has in each tensor, 0 where it does not appear."""

    size: int
    left: int
    right: int
    out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """A product out[b, m, n] = Σ_k left[b, m, k] right[b, k, n], whatever the spelling.

    Each index may stand for several axes, those of the larger stride first; axes that lie behind one another in every
    tensor are one. So `x @ w.T`, `F.linear(x, w)` and an einsum of the same tensors are equal here.
    """

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, m, n, k."""
        batch, m, n, k = (math.prod(axis.size for axis in axes) for axes in (self.batch, self.m, self.n, self.k))
        return batch, m, n, k


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Nodes that one kernel can compute. A region runs after the regions that its operands come from."""

    #: The name of its last node.
    name: str
    family: Family
    #: Canonical operator: "linear", "conv2d", "softmax", "rms_norm"; for pointwise regions the steps in order.
    form: str
    #: In order.
    nodes: tuple[str, ...]
    operands: tuple[Operand, ...]
    #: What other regions or the caller read; the source is the region itself.
    outputs: tuple[Operand, ...]
    #: Output -> the regions that read it, and "return".
    consumers: Mapping[str, tuple[str, ...]]
    #: Constant arguments in canonical form: stride, padding, dim, eps, alpha, …
    constants: Mapping[str, Any] = field(default_factory=dict)
    contraction: Contraction | None = None
    #: Pointwise regions whose results only this region reads, and the pointwise region that alone reads its results.
    prologue: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    #: Floating-point operations, two a multiplication: of products, convolutions, attention and recurrences only.
    flops: int = 0
    #: Bytes of all operands read once, and of all outputs written once.
    bytes_read: int = 0
    bytes_written: int = 0
    #: Milliseconds at the roofline at the task's precision, and of its nodes run one by one; None where not measured.
    roofline_ms: float | None = None
    eager_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A trace, cut into regions: every node that is no view is in exactly one."""

    trace: Trace
    #: In an order in which they can run.
    regions: tuple[Region, ...]

    @cached_property
    def region(self) -> Mapping[str, Region]:
        """The regions by name."""
        return {region.name: region for region in self.regions}

    def nodes_by_family(self) -> dict[Family, int]:
        """Number of nodes in regions of each family."""
        counts = dict.fromkeys(Family, 0)
        for region in self.regions:
            counts[region.family] += len(region.nodes)
        return counts

    def total(self, number: str) -> float:
        """The sum over the regions of one of their numbers, e.g. "flops"; those that were not measured count 0."""
        return sum(getattr(region, number) or 0 for region in self.regions)
