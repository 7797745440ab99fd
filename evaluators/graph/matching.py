"""Forms, and patterns of forms: how the same computation is found under several spellings.

A form is one step with a canonical name: at first a node, later several nodes that a pattern has found to be a softmax,
an RMS norm or an attention.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import TypeAlias

from kbevolve.evaluators.graph.records import Argument, Node, Ref, Trace, refs

#: Names of ATen that stand for one form.
_SAME = {
    "_native_batch_norm_legit_no_training": "batch_norm", "cudnn_batch_norm": "batch_norm",
    "native_batch_norm": "batch_norm", "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "_softmax": "softmax", "_log_softmax": "log_softmax", "special_softmax": "softmax", "mm": "matmul", "bmm": "matmul",
    "mv": "matmul", "dot": "matmul", "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub",
    "absolute": "abs", "special_expit": "sigmoid", "special_erf": "erf", "linalg_vector_norm": "norm",
    "special_logsumexp": "logsumexp", "clip": "clamp", "scaled_dot_product_attention": "attention",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Form:
    """One step of the computation."""

    #: "linear", "softmax", "mul", …
    kind: str
    arguments: Mapping[str, Argument]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The values that it reads from outside, each once."""
        inside = {value for node in self.nodes for value in node.outputs}
        found = (value for node in self.nodes for value in node.reads if value not in inside)
        return tuple(dict.fromkeys(found))

    @property
    def view(self) -> bool:
        """Whether it computes nothing."""
        return all(node.view for node in self.nodes)

    @property
    def pointwise(self) -> bool:
        """Whether each element of its result needs only the elements at its place."""
        return all(node.pointwise or node.view for node in self.nodes)


@dataclass(frozen=True)
class Wildcard:
    """A pattern of one argument: any, bound to a name. A second one of this name must be equal."""

    name: str
    #: Only a number, or only a parameter of the model.
    number: bool = False
    parameter: bool = False


@dataclass(frozen=True)
class StepPattern:
    """A pattern of a form: one of the kinds (``"add|sub"``), and patterns of its first operands and named arguments."""

    kinds: str
    operands: tuple["Pattern", ...]
    named: Mapping[str, "Pattern"] = field(default_factory=dict)


#: A tuple of patterns means one of them, a number itself.
Pattern: TypeAlias = "Wildcard | StepPattern | int | float | bool | tuple[Pattern, ...]"


def call(kinds: str, *operands: Pattern, **named: Pattern) -> StepPattern:
    """A `StepPattern`."""
    return StepPattern(kinds, operands, named)


@dataclass(frozen=True)
class Found:
    """A match: what names are bound to, and the forms inside."""

    bound: Mapping[str, Argument] = field(default_factory=dict)
    forms: tuple[Form, ...] = ()


class Forms:
    """The forms of a trace, which patterns join."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._kept = {*trace.outputs, *trace.written.values()}
        self._made: dict[str, Form] = {}
        for node in trace.nodes:
            tanh = "_tanh" if node.arguments.get("approximate") == "tanh" else ""
            form = Form(
                kind=_SAME.get(node.kind, node.kind) + tanh,
                arguments=_with_plain_dim(node, trace),
                nodes=(node,),
                outputs=node.outputs,
            )
            self._made |= dict.fromkeys(node.outputs, form)

    def all(self) -> tuple[Form, ...]:
        """The forms, in the order of their last nodes."""
        order = {node.name: index for index, node in enumerate(self._trace.nodes)}
        forms = {id(form): form for form in self._made.values()}
        return tuple(sorted(forms.values(), key=lambda form: order[form.nodes[-1].name]))

    def join(self, kind: str, pattern: Pattern) -> None:
        """Make each match of the pattern one form, whose arguments are what the pattern binds."""
        order = {node.name: index for index, node in enumerate(self._trace.nodes)}
        for root in self.all():
            if self._made.get(root.outputs[0]) is not root:
                continue  # it is a part of an earlier match
            for found in self._matches(pattern, Ref(root.outputs[0]), Found()):
                inner = tuple({id(form): form for form in found.forms}.values())
                if self._is_closed(inner, root):
                    nodes = sorted(
                        {n.name: n for one in inner for n in one.nodes}.values(), key=lambda n: order[n.name]
                    )
                    form = Form(kind=kind, arguments=dict(found.bound), nodes=tuple(nodes), outputs=root.outputs)
                    for one in inner:
                        for value in one.outputs:
                            self._made.pop(value, None)
                    self._made |= dict.fromkeys(root.outputs, form)
                    break

    def _is_closed(self, forms: Sequence[Form], root: Form) -> bool:
        """Whether nothing outside reads what the forms but the last one compute."""
        nodes = {node.name for form in forms for node in form.nodes}
        return not any(
            value in self._kept or any(reader.name not in nodes for reader in self._trace.readers[value])
            for form in forms
            if form is not root
            for value in form.outputs
        )

    def _matches(self, pattern: Pattern, argument: Argument, found: Found) -> Iterator[Found]:
        if isinstance(pattern, tuple):
            for one in pattern:
                yield from self._matches(one, argument, found)
        elif isinstance(pattern, Wildcard):
            values = refs(argument)
            is_parameter = bool(values) and self._trace.base(values[0])[0].startswith("self.")
            fits = (not pattern.number or _is_number(argument)) and (not pattern.parameter or is_parameter)
            if fits and found.bound.get(pattern.name, argument) == argument:
                yield Found({**found.bound, pattern.name: argument}, found.forms)
        elif isinstance(pattern, StepPattern):
            form = self._made.get(argument.value) if isinstance(argument, Ref) else None
            if form and form.kind in pattern.kinds.split("|") and form.outputs[0] == argument.value:  # type: ignore[union-attr]
                yield from self._operands(pattern, form, Found(found.bound, (*found.forms, form)))
        elif _is_number(argument) and isclose(float(argument), float(pattern), rel_tol=1e-4):  # type: ignore[arg-type]
            yield found

    def _operands(self, pattern: StepPattern, form: Form, found: Found) -> Iterator[Found]:
        count = len(pattern.operands)
        given = list(form.arguments.values())[:count]
        if len(given) < count or not pattern.named.keys() <= form.arguments.keys():
            return
        # An argument that the pattern does not mention must be one that changes nothing.
        rest = {name: value for name, value in list(form.arguments.items())[count:] if name not in pattern.named}
        if any(value not in (None, False) and (name, value) != ("alpha", 1) for name, value in rest.items()):
            return
        orders = [given, given[::-1]] if form.kind in ("add", "mul") and len(given) == 2 else [given]
        named = [(pattern.named[name], form.arguments[name]) for name in pattern.named]
        for order in orders:
            yield from self._each([*zip(pattern.operands, order, strict=True), *named], found)

    def _each(self, pairs: Sequence[tuple[Pattern, Argument]], found: Found) -> Iterator[Found]:
        if not pairs:
            yield found
            return
        for first in self._matches(*pairs[0], found):
            yield from self._each(pairs[1:], first)


def _with_plain_dim(node: Node, trace: Trace) -> Mapping[str, Argument]:
    """The arguments with ``dim`` counted from the last axis, and one axis as a number: -1 for 1, [1] or [-1]."""
    dim, rank = node.arguments.get("dim"), len(trace.tensors[node.reads[0]].shape) if node.reads else 0
    axes = dim if isinstance(dim, tuple) else (dim,)
    if not axes or not all(type(axis) is int for axis in axes):
        return node.arguments
    counted = tuple(axis - rank if axis >= 0 else axis for axis in axes if isinstance(axis, int))
    return {**node.arguments, "dim": counted[0] if len(counted) == 1 else counted}


def _is_number(argument: Argument) -> bool:
    return isinstance(argument, int | float)
