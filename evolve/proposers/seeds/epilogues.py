"""What follows a product element by element, its epilogue: steps of a traced graph in Gluon, CUDA and torch's calls."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch.fx import Node

from kbevolve.evaluators.graph import records
from kbevolve.evaluators.graph.records import Ref
from kbevolve.evaluators.graph.tracer import tensor_spec
from kbevolve.evolve.proposers.seeds.aten import arguments_of, tensor_of
from kbevolve.evolve.proposers.seeds.cpp.spaces import repeated
from kbevolve.evolve.proposers.seeds.expressions import CUDA, GLUON, NoExpressionError, expression
from kbevolve.evolve.proposers.seeds.split_products import IN_CUDA

#: Other tensors that an epilogue reads, at most: as many pointers as the kernels of the templates take.
MOST_EXTRAS = 4
#: Arguments of batch norm that have one number for each channel.
_OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")
#: How another tensor is read in Gluon and in CUDA, by how its numbers lie: one for all, one a column, as the result's.
_LOADS = {
    "one": ("gl.load(e{0})", "e{0}[0]"),
    "column": ("gl.load(e{0} + column, mask=known, other=0.0)", "e{0}[column]"),
    "whole": ("gl.load(e{0} + at, mask=inside, other=0.0)", "e{0}[at]"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """What follows a product, element by element, as text."""

    #: Statements of Gluon and of CUDA that make `value`, and of torch that return the result from `value` and extras.
    gluon: tuple[str, ...]
    cuda: tuple[str, ...]
    torch: tuple[str, ...]
    #: Number of other tensors that are read.
    extras: int


_NONE = Epilogue(gluon=("value = value",), cuda=("value = value;",), torch=("return value",), extras=0)


def text_of(epilogues: Sequence[Epilogue]) -> str:
    """Epilogues for a kernel's file, numbered from 1; number 0 changes nothing.

    `split_epilogue` and `EPILOGUES_IN_CUDA` are for templates, `EPILOGUES` for torch.
    """
    newline = "\n    "
    lines = [
        "@gluon.jit",
        "def split_epilogue(EPILOGUE: gl.constexpr, value, e0, e1, e2, e3, at, inside, column, known):",
        "    # What follows a product: at are places in the result, column is the column of each.",
    ]
    for number, epilogue in enumerate(epilogues, 1):
        lines += [f"    if EPILOGUE == {number}:", *(f"        {line}" for line in epilogue.gluon)]
    lines += ["    return value", "", ""]
    for number, epilogue in enumerate((_NONE, *epilogues)):
        taken = ", ".join(("value", *(f"x{extra}" for extra in range(epilogue.extras))))
        lines += [f"def epilogue_{number}({taken}):", *(f"    {line}" for line in epilogue.torch), "", ""]
    names = ", ".join(f"epilogue_{number}" for number in range(len(epilogues) + 1))
    lines += [f"EPILOGUES = ({names},)", f"{IN_CUDA} = ("]
    lines += [f'    """{newline.join(("", *epilogue.cuda))}""",' for epilogue in (_NONE, *epilogues)]
    return "\n".join([*lines, ")", "", ""])


@dataclass(slots=True)
class EpilogueChain:
    """A product and steps behind it, each of which reads earlier ones, numbers and perhaps other tensors."""

    product: Node
    #: The axis of the result that goes through the columns of the product.
    axis: int
    steps: list[Node] = field(default_factory=list)
    #: The other tensors.
    extras: list[Node] = field(default_factory=list)
    _gluon: list[str] = field(default_factory=list)
    _cuda: list[str] = field(default_factory=list)

    @property
    def last(self) -> Node:
        """What has the result."""
        return self.steps[-1] if self.steps else self.product

    @property
    def names(self) -> dict[Node, str]:
        """The variable of each node; chains that compute the same have the same."""
        extras = {extra: f"x{number}" for number, extra in enumerate(self.extras)}
        return {self.product: "value", **extras} | {step: f"y{number}" for number, step in enumerate(self.steps)}

    def take(self, node: Node) -> bool:
        """Add a step; whether that is possible."""
        result = node.meta.get("val")
        if node.op != "call_function" or not isinstance(result, torch.Tensor) or not result.is_contiguous():
            return False
        if result.shape != tensor_of(self.product).shape or result.dtype not in (torch.float32, torch.bool):
            return False
        record, names = _record(node), self.names
        new = [one for one in node.all_input_nodes if one not in names]
        if not all(isinstance(one.meta.get("val"), torch.Tensor) for one in new):
            return False
        gluon, cuda = [], []
        for number, one in enumerate(new, len(self.extras)):
            form = self._form(one, record)
            if form is None or number >= MOST_EXTRAS:
                return False
            names[one] = f"x{number}"
            in_gluon, in_cuda = _LOADS[form]
            gluon.append(f"x{number} = {in_gluon.format(number)}")
            cuda.append(f"const float x{number} = {in_cuda.format(number)};")
        try:
            found, same = (
                expression(record, {one.name: name for one, name in names.items()}, language)
                for language in (GLUON, CUDA)
            )
        except NoExpressionError:
            return False
        if found.mask != (result.dtype is torch.bool) or not _reads_masks_as_such(node):
            return False
        self._gluon += [*gluon, f"y{len(self.steps)} = {found.text}"]
        self._cuda += [*cuda, f"const auto y{len(self.steps)} = {same.text};"]
        self.extras += new
        self.steps.append(node)
        return True

    def _form(self, extra: Node, reader: records.Node) -> str | None:
        """How another tensor is read; None where it is neither a number, nor one a column, nor of the result's form."""
        tensor, result = tensor_of(extra), tensor_of(self.product)
        roles = [name for name, value in reader.arguments.items() if value == Ref(extra.name)]
        of_channels = reader.kind == "batch_norm" and all(role in _OF_CHANNELS for role in roles)
        strides = repeated(tensor_spec(tensor), tuple(result.shape), channel=of_channels)
        if strides is None or tensor.dtype is not torch.float32:
            return None
        whole = tuple(stride if size > 1 else 0 for size, stride in zip(result.shape, result.stride(), strict=True))
        column = tuple(int(axis == self.axis and size > 1) for axis, size in enumerate(result.shape))
        if not any(strides):
            return "one"
        if strides == column:
            return "column"
        return "whole" if strides == whole else None

    def shortened(self, steps: int) -> "EpilogueChain | None":
        """The first steps alone; None for no steps."""
        chain = EpilogueChain(self.product, self.axis)
        return chain if all(chain.take(node) for node in self.steps[:steps]) and steps else None

    def epilogue(self) -> Epilogue:
        """What the steps compute."""
        last = self.names[self.last]
        return Epilogue(
            gluon=(*self._gluon, f"value = {last}"),
            cuda=(*self._cuda, f"value = {last};"),
            torch=(*self._torch(), f"return {last}"),
            extras=len(self.extras),
        )

    def _torch(self) -> Iterator[str]:
        """The steps as torch's own operators."""
        names = self.names

        def text(value: Any) -> str:
            if isinstance(value, Node):
                return names[value]
            return repr(value) if not isinstance(value, float) or isfinite(value) else f'float("{value}")'

        for step in self.steps:
            given = [*map(text, step.args), *(f"{name}={text(value)}" for name, value in step.kwargs.items())]
            yield f"{names[step]} = torch.ops.{step.target}({', '.join(given)})"


def followed(product: Node, axis: int) -> EpilogueChain | None:
    """The longest chain behind a product of which only the last result is read elsewhere; None without steps."""
    chain, best, inside = EpilogueChain(product, axis), 0, {product}
    node = product.next
    while node.op != "output":
        if not inside.isdisjoint(node.all_input_nodes):
            if not chain.take(node):
                break
            inside.add(node)
            closed = all(one is node or inside.issuperset(one.users) for one in inside)
            if closed and tensor_of(node).dtype is torch.float32:
                best = len(chain.steps)
        node = node.next
    return chain.shortened(best)


def _record(node: Node) -> records.Node:
    arguments = {
        name: Ref(value.name) if isinstance(value, Node) else value for name, value in arguments_of(node).items()
    }
    return records.Node(name=node.name, op=str(node.target), arguments=arguments, outputs=(node.name,))


def _reads_masks_as_such(node: Node) -> bool:
    """Whether a node chooses by its masks and computes with nothing but numbers."""
    wanted = {"where": "condition", "masked_fill": "mask"}.get(str(node.target).split(".")[1])
    return all(
        (tensor_of(value).dtype is torch.bool) == (name == wanted)
        for name, value in arguments_of(node).items()
        if isinstance(value, Node)
    )
