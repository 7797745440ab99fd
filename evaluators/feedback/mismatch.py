"""Describes how a wrong output is wrong, so that the next attempt can be right.

The text contains what anyone with the problem's file could find out: where, by how much, and in what pattern. It never
contains how inputs are drawn or the accepted bound.
"""

from collections.abc import Sequence
from typing import Any

import torch

from kbevolve.evaluators.correctness.truth import as_real

#: An element is plainly wrong beyond this share of its value plus the typical value. This is for the text only, and no
#: tolerance of the judge.
_PLAINLY_WRONG = 1e-3
#: A relative error below the first number is rounding (bf16: 3e-3), unless an element is off by more than the second
#: number times its value plus the typical value.
_LIKE_ROUNDING = 2e-2
_GROSS = 0.1
#: Examples shown.
_EXAMPLES = 5
#: Elements examined: the text needs no more, and a 2 GB output would need 10 GB of temporaries.
_EXAMINED = 1 << 24


def describe_mismatch(
    outputs: Sequence[torch.Tensor],
    truth: Sequence[torch.Tensor],
    error: float,
    reference_error: float,
    names: Sequence[str] = (),
) -> str:
    """The text on an output that was not accepted; `names` are those of its tensors, where there are several."""
    worst, text, gross = -1.0, "", False
    for index, (output, right) in enumerate(zip(outputs, truth, strict=True)):
        fraction, words, far = _describe_tensor(*_window(output, right))
        gross = gross or far
        if fraction > worst:
            name = names[index] if names else f"output {index}"
            worst, text = fraction, f"{name}: {words}" if len(outputs) > 1 else words
    measured = f"relative error {error:.2g} against fp64 (the reference: {reference_error:.2g})"
    if error < _LIKE_ROUNDING and not gross:
        return f"not accurate enough for this precision: {measured}; {text}"
    return f"wrong values: {text}; {measured}"


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


def _window(output: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int, bool]:
    """The worst rows of both, few enough to examine; the index of the first, and whether they reach the end."""
    if right.numel() <= _EXAMINED or right.ndim == 0:
        return output, right, 0, True
    rows = max(1, _EXAMINED * right.shape[0] // right.numel())
    worst, first = -1.0, 0
    for start in range(0, right.shape[0], rows):
        mine, theirs = (as_real(tensor[start : start + rows]).double() for tensor in (output, right))
        difference = (mine - theirs).abs_()
        largest = float(difference.nan_to_num_(torch.inf).amax())
        if largest >= worst:  # the last of equals: omitted rows are mostly at the end
            worst, first = largest, start
    return output[first : first + rows], right[first : first + rows], first, first + rows >= right.shape[0]


def _describe_tensor(
    output: torch.Tensor, right: torch.Tensor, first: int, to_the_end: bool
) -> tuple[float, str, bool]:
    """Share of plainly wrong elements, the text, and whether one is far off.

    When none is plainly wrong, the examples are the worst elements.
    """
    mine, right = as_real(output).double(), as_real(right).double()
    typical = right[right.isfinite()].square().mean().sqrt().nan_to_num()
    same = (mine == right) | (mine.isnan() & right.isnan())
    # NaN compares as false, so it is not near.
    near = ((mine - right).abs() <= _PLAINLY_WRONG * (right.abs() + typical)) | same
    wrong = ~near
    gross = bool((~((mine - right).abs() <= _GROSS * (right.abs() + typical)) & ~same).any())
    count = int(wrong.sum())
    if count:
        chosen = wrong
    else:
        differences = (mine - right).abs()
        chosen = differences >= differences.flatten().topk(min(_EXAMPLES, differences.numel())).values[-1:]
    places = chosen.nonzero()[:_EXAMPLES].tolist()
    shown = ", ".join(
        f"[{', '.join(map(str, [first + place[0], *place[1:]] if place else place))}] "
        f"got {mine[tuple(place)].item():.6g} want {right[tuple(place)].item():.6g}"
        for place in places
    )
    if not count:
        return 0.0, f"largest differences: {shown}", gross
    pattern = _pattern(mine, right, wrong, first, to_the_end)
    fraction = count / max(wrong.numel(), 1)
    return (
        fraction,
        f"{100 * fraction:.3g} % of the elements{f' ({pattern})' if pattern else ''}; first: {shown}",
        gross,
    )


def _pattern(mine: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor, first: int, to_the_end: bool) -> str:
    """The simplest pattern that fits; "" when none does."""
    if mine.isnan().all():
        return "all NaN, or never written"
    if mine.isnan().any():
        return f"{100 * float(mine.isnan().double().mean()):.3g} % NaN, or never written"
    if not mine.any():
        return "all zeros"
    if mine.numel() > 1 and bool((mine == mine.flatten()[0]).all()):
        return "the same value everywhere"
    if mine.ndim >= 2 and mine.shape[-1] == mine.shape[-2] and torch.allclose(mine.mT, right, rtol=1e-3, atol=1e-3):
        return "transposed"
    where = _region(wrong, first, to_the_end)
    if where:
        return where
    usable = right.abs() > right.abs().mean() * 1e-3
    ratios = mine[usable] / right[usable]
    if ratios.numel() > 1 and float(ratios.std()) < 1e-3 * abs(float(ratios.mean())):
        return f"{float(ratios.mean()):.4g} times the right value everywhere"
    offsets = mine - right
    if float(offsets.std()) < 1e-3 * abs(float(offsets.mean())):
        return f"off by {float(offsets.mean()):.4g} everywhere"
    return ""


def _region(wrong: torch.Tensor, first: int, to_the_end: bool) -> str:
    """The wrong elements, where they are one stretch at the end of an axis, e.g. a last tile; else ""."""
    for axis in range(0 if to_the_end else 1, wrong.ndim):
        others = [other for other in range(wrong.ndim) if other != axis]
        lines = wrong.any(dim=others) if others else wrong
        offset = 0 if axis else first
        start = int(lines.nonzero()[0])
        if start and bool(lines[start:].all()):
            return f"only index {offset + start} and above of {offset + lines.numel()} along axis {axis}: a last tile?"
    return ""
