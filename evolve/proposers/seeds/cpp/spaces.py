"""Where the elements of several tensors lie that a loop visits together: rows, and the elements of a row."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbevolve.evaluators.graph.records import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An index space of rows. Axes along which all tensors lie alike are one."""

    #: Sizes of the axes that a row's number stands for, the slowest first; () for one row.
    outer: tuple[int, ...]
    #: Elements of a row.
    inner: int
    #: Tensor -> its strides along `outer`, and between neighbours of a row, in elements.
    outer_strides: Mapping[str, tuple[int, ...]]
    inner_stride: Mapping[str, int]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.prod(self.outer)

    def row_offset(self, tensor: str, row: str = "row") -> str:
        """A C++ expression: where a row of a tensor begins, in elements."""
        return offset(self.outer, self.outer_strides[tensor], row)


def offset(sizes: Sequence[int], strides: Sequence[int], index: str) -> str:
    """A C++ expression: the place of a number that counts through axes of these sizes, the last one fastest."""
    terms = []
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if not stride:
            continue
        behind = math.prod(sizes[axis + 1 :])
        number = index if behind == 1 else f"{index} / {behind}"
        if axis:
            number = f"{number} % {size}"
        terms.append(number if stride == 1 else f"{number} * {stride}")
    return " + ".join(terms) or "0"


def space_of(shape: Sequence[int], strides: Mapping[str, Sequence[int]], *, split: int | None = None) -> Space | None:
    """The rows of a shape.

    Args:
        shape: of what is computed.
        strides: tensor -> its strides along the axes of the shape, 0 where it is repeated.
        split: the axes from this one on are a row's; None for as many as possible, but no more than one after joining.

    Returns:
        None where a row's axes cannot be one for all tensors.
    """
    if split is None:
        sizes, joined = _joined(shape, strides)
        if not sizes:
            sizes, joined = (1,), {tensor: (1,) for tensor in strides}
        return Space(
            outer=sizes[:-1],
            inner=sizes[-1],
            outer_strides={tensor: own[:-1] for tensor, own in joined.items()},
            inner_stride={tensor: own[-1] for tensor, own in joined.items()},
        )
    outer, before = _joined(shape[:split], {tensor: own[:split] for tensor, own in strides.items()})
    inner, behind = _joined(shape[split:], {tensor: own[split:] for tensor, own in strides.items()})
    if len(inner) > 1:
        return None
    return Space(
        outer=outer,
        inner=inner[0] if inner else 1,
        outer_strides=before,
        inner_stride={tensor: own[0] if own else 1 for tensor, own in behind.items()},
    )


def _joined(
    shape: Sequence[int], strides: Mapping[str, Sequence[int]]
) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Sizes and strides without axes of one element, and with axes joined that every tensor goes through as one."""
    sizes: list[int] = []
    joined: dict[str, list[int]] = {tensor: [] for tensor in strides}
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(joined[tensor][-1] == own[axis] * size for tensor, own in strides.items()):
            sizes[-1] *= size
            for tensor, own in strides.items():
                joined[tensor][-1] = own[axis]
        else:
            sizes.append(size)
            for tensor, own in strides.items():
                joined[tensor].append(own[axis])
    return tuple(sizes), {tensor: tuple(own) for tensor, own in joined.items()}


def repeated(spec: TensorSpec, shape: Sequence[int], *, channel: bool = False) -> tuple[int, ...] | None:
    """The strides of a tensor along the axes of a shape that it is broadcast to; None where it cannot be.

    Args:
        spec: the tensor.
        shape: what it is broadcast to.
        channel: whether its only axis is axis 1 of the shape, as with batch norm; else the last axes are matched.
    """
    if channel:
        fits = len(spec.shape) == 1 and len(shape) > 1 and spec.shape[0] in (1, shape[1])
        return (0, spec.stride[0] if spec.shape[0] > 1 else 0, *[0] * (len(shape) - 2)) if fits else None
    lead = len(shape) - len(spec.shape)
    if lead < 0 or any(own not in (1, size) for own, size in zip(spec.shape, shape[lead:], strict=True)):
        return None
    own = (stride if size > 1 else 0 for size, stride in zip(spec.shape, spec.stride, strict=True))
    return (*[0] * lead, *own)


def by_memory(spec: TensorSpec) -> tuple[int, ...]:
    """The axes of a tensor in the order of their strides, the largest first."""
    return tuple(sorted(range(len(spec.shape)), key=lambda axis: (-spec.stride[axis], axis)))
