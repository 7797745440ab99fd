"""Products in canonical form: which axes of the operands are batch, m, n and k, and their strides."""

from collections.abc import Sequence
from string import ascii_letters

from kbevolve.evaluators.graph.matching import Form
from kbevolve.evaluators.graph.records import Argument, Axis, Contraction, Ref, TensorSpec, Trace

#: Form -> the arguments that are its left and right operands.
_OPERANDS = {"matmul": ("self", "other"), "linear": ("input", "weight"), "addmm": ("mat1", "mat2")}
_OPERANDS |= {"baddbmm": ("batch1", "batch2")}


def product_operands(form: Form) -> dict[str, str]:
    """Role -> value: left, right, and bias where there is one; empty for a product of other than two tensors."""
    arguments = form.arguments
    if form.kind == "einsum":
        tensors = arguments["tensors"]
        found: dict[str, Argument] = {}
        if isinstance(tensors, tuple) and len(tensors) == 2:
            found = dict(zip(("left", "right"), tensors, strict=True))
    else:
        names = list(_OPERANDS.get(form.kind, ()))
        if form.kind == "matmul":  # mm, bmm, mv and dot name their second operand differently
            names = list(arguments)[:2]
        found = dict(zip(("left", "right"), (arguments[name] for name in names), strict=False))
        bias = arguments.get("self" if form.kind in ("addmm", "baddbmm") else "bias")
        found |= {"bias": bias} if bias is not None and form.kind != "matmul" else {}
    return {role: argument.value for role, argument in found.items() if isinstance(argument, Ref)}


def contraction_of(form: Form, trace: Trace) -> Contraction | None:
    """The product in canonical form; None for an einsum that is none (a repeated or summed index, three tensors)."""
    operands = product_operands(form)
    if not {"left", "right"} <= operands.keys():
        return None
    left, right, out = (trace.tensors[value] for value in (operands["left"], operands["right"], form.outputs[0]))
    labels = _labels(form, left, right, out)
    if labels is None or any(len(set(word)) < len(word) for word in labels):
        return None
    words = tuple(labels)
    strides = [
        {label: stride if size > 1 else 0 for label, size, stride in zip(word, spec.shape, spec.stride, strict=True)}
        for word, spec in zip(words, (left, right, out), strict=True)
    ]
    sizes: dict[str, int] = {}
    for word, spec in zip(words, (left, right, out), strict=True):
        for label, size in zip(word, spec.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    roles: dict[str, list[Axis]] = {"batch": [], "m": [], "n": [], "k": []}
    for label in dict.fromkeys(words[2] + words[0] + words[1]):
        role = _role(label, words)
        if role is None:
            return None
        found = [where.get(label, 0) for where in strides]
        roles[role].append(Axis(size=sizes[label], left=found[0], right=found[1], out=found[2]))
    return Contraction(**{role: _joined(axes) for role, axes in roles.items()})


def _role(label: str, words: Sequence[str]) -> str | None:
    inside = tuple(label in word for word in words)
    names = {(True, True, True): "batch", (True, False, True): "m", (False, True, True): "n", (True, True, False): "k"}
    return names.get(inside)  # type: ignore[arg-type]


def _labels(form: Form, left: TensorSpec, right: TensorSpec, out: TensorSpec) -> list[str] | None:
    """A letter for each axis of left, right and out, as in an einsum."""
    if form.kind == "einsum":
        equation = str(form.arguments["equation"]).replace(" ", "")
        if "." in equation or "->" not in equation:
            return None
        operands, result = equation.split("->")
        return [*operands.split(","), result]
    batch = ascii_letters[: max(0, len(out.shape))]
    if form.kind == "linear":
        lead = batch[: len(left.shape) - 1]
        return [lead + "K", "NK"[2 - len(right.shape) :], lead + "N" * (len(right.shape) - 1)]
    rows = "M" * (len(left.shape) > 1)
    columns = "N" * (len(right.shape) > 1)
    lead = batch[: len(out.shape) - len(rows) - len(columns)]
    return [
        lead[len(lead) - max(0, len(left.shape) - 2) :] + rows + "K",
        lead[len(lead) - max(0, len(right.shape) - 2) :] + "K" + columns,
        lead + rows + columns,
    ]


def _joined(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Without axes of size 1, and with axes joined that lie behind one another in all three tensors."""
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1 and len(axes) > 1:
            continue
        last = found[-1] if found else None
        if last and all(getattr(last, name) == getattr(axis, name) * axis.size for name in ("left", "right", "out")):
            found[-1] = Axis(size=last.size * axis.size, left=axis.left, right=axis.right, out=axis.out)
        else:
            found.append(axis)
    return tuple(found) or tuple(axes[:1])
