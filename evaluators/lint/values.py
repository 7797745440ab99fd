"""What an expression of a kernel file can stand for, as far as reading alone tells."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from kbevolve.evaluators.lint.known_names import CHILDREN


@dataclass(frozen=True, slots=True)
class Named:
    """Something another module or Python itself defines."""

    #: Where it comes from, aliases undone: "torch.nn.functional.relu", "builtins.getattr".
    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A constant string, put together if it was written in parts."""

    text: str


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of another module."""

    #: The class, e.g. "torch.nn.Linear".
    of: str


@dataclass(frozen=True, slots=True)
class Local:
    """A function, lambda or class of the file."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Own:
    """An object of a class of the file (`self`), or what `super()` gives in it."""

    node: ast.ClassDef
    #: Whether the class's own definitions are passed over.
    parent: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A container: a tuple, list, dictionary or a torch.nn container; made by `group`."""

    elements: tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the kernel's builder made: an extension, a library, a function in it."""


Value = Named | Text | Instance | Local | Own | Group | Tensor | Built

#: Members of a container that are kept: a string may come in as many pieces.
_MOST_MEMBERS = 128


def group(members: Iterable[Value]) -> Group:
    """A container of these. Containers within are opened, so that nesting costs nothing."""
    flat: list[Value] = []
    for member in members:
        for one in member.elements if isinstance(member, Group) else (member,):
            # Strings may be pieces of one, so that none may be left out.
            if isinstance(one, Text) or one not in flat:
                flat.append(one)
        if len(flat) >= _MOST_MEMBERS:
            break
    return Group(tuple(flat[:_MOST_MEMBERS]))


def elements(value: Value) -> Iterable[Value]:
    """What iterating over a value, or an index of it, gives."""
    match value:
        case Group(members):
            return members
        case Tensor() | Built():
            return [value]
        case Text(text) if len(text) <= 256:
            return [Text(one) for one in text]
    return []


def of_instance(of: str, name: str) -> Iterable[Value]:
    """What an attribute of an object of another module's class is."""
    if name in {"forward", "__call__", "_call_impl", "_conv_forward"}:
        return [Named(f"{of}.{name}")]
    if name in CHILDREN or name.endswith("_features") or name.endswith("_channels"):
        return []
    if name.startswith(("weight", "bias", "running_", "in_proj", "out_proj")):
        return [Tensor()]
    return []
