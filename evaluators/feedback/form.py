"""Describes how the form of an output differs from the reference's: structure, shape, dtype, device and memory."""

from collections.abc import Sequence
from typing import Any


def describe_shape(structure: Any, leaves: Sequence[Any], expected: Any, places: Sequence[Any]) -> str:
    """How an output's structure differs from the reference's; "" when it does not.

    Structure and leaves (shape, dtype, device, plainness and expansion of each tensor) are as the worker reported them.
    `expected` is the reference's structure, and `places` its tensors, with the same facts as a leaf.
    """
    if isinstance(structure, dict) and "foreign" in structure:
        return f"forward() returned {structure['foreign']}; the reference returns {_form(expected)}"
    if structure != expected or len(leaves) != len(places):
        return f"forward() returned {_form(structure)}; the reference returns {_form(expected)}"
    for index, (leaf, place) in enumerate(zip(leaves, places, strict=True)):
        name = f"output {index}" if len(places) > 1 else "the output"
        if leaf.get("plain") is not True:
            return f"{name} is a subclass of torch.Tensor or carries attributes; return a plain tensor"
        for key in ("shape", "dtype", "device"):
            if leaf.get(key) != place[key]:
                return f"{name} has {key} {_plain(leaf.get(key))}; the reference's has {_plain(place[key])}"
        if leaf.get("expanded") is not False and not place["expanded"]:
            return f"{name} shows one element many times (stride 0); write every element"
        if leaf.get("overlaps") is not False and not place["overlaps"]:
            return "elements of the outputs share memory; return tensors whose elements have memory of their own"
    return ""


def _form(structure: Any) -> str:
    if not isinstance(structure, dict):
        return f"the plain value {structure!r}"[:100]
    kind, content = next(iter(structure.items()))
    if kind == "tensor":
        return "one tensor"
    return f"a {kind} of {len(content)}" if isinstance(content, list) else f"a {kind}"


def _plain(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)[:100]
