"""The output of a candidate: its structure, and whether each tensor is a plain one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from kbevolve.evaluators.worker.timing import poison
from kbevolve.evaluators.worker.values import Unpackable, dtype_name, dtype_named, pack

# Bound before any candidate is imported: patching torch later does not change it.
_copy = torch.Tensor.copy_
_data_ptr = torch.Tensor.data_ptr


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a call returned: its structure, its tensors as they were returned, and as the reference returns them."""

    structure: Any
    leaves: list[torch.Tensor]
    settled: list[torch.Tensor]


def settle(output: Any, layouts: Sequence[list[int] | None]) -> Returned:
    """Bring each tensor of an output into the reference's layout, inside the timed window.

    A transposed, conjugated or negated view costs its user a copy; so it costs the kernel one, too. So does memory that
    is copied when it is first used: to ask for its address makes it.

    Args:
        output: what forward() returned.
        layouts: the strides of each tensor of the reference; None for one whose elements share memory.
    """
    leaves: list[torch.Tensor] = []
    try:
        structure = pack(output, leaves, exact=True)
    except Unpackable as error:
        return Returned(structure={"foreign": str(error)}, leaves=[], settled=[])
    if len(leaves) != len(layouts):
        return Returned(structure=structure, leaves=leaves, settled=leaves)
    for leaf in leaves:
        if type(leaf) is torch.Tensor and leaf.layout is torch.strided:
            _data_ptr(leaf)
    settled = [_settled(leaf, layout) for leaf, layout in zip(leaves, layouts, strict=True)]
    return Returned(structure=structure, leaves=leaves, settled=settled)


def _settled(leaf: torch.Tensor, layout: list[int] | None) -> torch.Tensor:
    if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided or layout is None:
        return leaf
    if not leaf.is_conj() and not leaf.is_neg():
        same = len(layout) == leaf.dim() and all(
            mine == theirs or size <= 1 for mine, theirs, size in zip(leaf.stride(), layout, leaf.shape, strict=True)
        )
        if same or not leaf.numel():
            return leaf
    if len(layout) != leaf.dim():  # the shape is wrong, and will be rejected
        return leaf
    own = torch.empty_strided(leaf.shape, layout, dtype=leaf.dtype, device=leaf.device)
    _copy(own, leaf)
    return own


def facts_of(leaves: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[dict[str, Any]]:
    """Facts about each tensor that a call returned, for the judge."""
    shared = overlaps([leaf for leaf in leaves if type(leaf) is torch.Tensor and leaf.layout is torch.strided])
    return [{**_facts(leaf, inputs), "overlaps": shared} for leaf in leaves]


def _facts(leaf: torch.Tensor, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
    # A subclass, or a tensor with attributes of its own, may compute when it is read.
    if type(leaf) is not torch.Tensor or leaf.__dict__ or leaf.layout is not torch.strided:
        return {"shape": [], "dtype": "", "device": "", "plain": False}
    return {
        "shape": list(leaf.shape),
        "dtype": dtype_name(leaf.dtype),
        "device": leaf.device.type,
        "plain": True,
        # An element that appears many times was written only once.
        "expanded": is_expanded(leaf),
        "aliases": any(_share_storage(leaf, tensor) for tensor in inputs),
    }


def is_expanded(leaf: torch.Tensor) -> bool:
    """Whether one element appears many times by stride 0."""
    return any(stride == 0 and size > 1 for stride, size in zip(leaf.stride(), leaf.shape, strict=True))


def overlaps(leaves: Sequence[torch.Tensor]) -> bool:
    """Whether any two elements of these tensors are the same memory."""
    leaves = [leaf for leaf in leaves if leaf.numel()]
    extents = sorted((leaf.data_ptr(), leaf.data_ptr() + _extent(leaf)) for leaf in leaves)
    apart = all(one[1] <= other[0] for one, other in pairwise(extents))
    if apart and all(map(_dense_enough, leaves)):
        return False
    return _marked_twice(leaves)


def _extent(leaf: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    last = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
    return (last + 1) * leaf.element_size()


def _dense_enough(leaf: torch.Tensor) -> bool:
    """Whether each stride steps over all that the smaller ones reach; then no two elements meet."""
    reach = 0
    for stride, size in sorted(zip(leaf.stride(), leaf.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True


def _marked_twice(leaves: Sequence[torch.Tensor]) -> bool:
    """Mark every element's byte and see whether the marks are as many as the elements."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for leaf in leaves:
        by_storage.setdefault(leaf.untyped_storage().data_ptr(), []).append(leaf)
    for group in by_storage.values():
        marks = torch.zeros(group[0].untyped_storage().nbytes(), dtype=torch.bool, device=group[0].device)
        for leaf in group:
            width = leaf.element_size()
            strides = [stride * width for stride in leaf.stride()]
            marks.as_strided(leaf.shape, strides, leaf.storage_offset() * width).fill_(True)
        if int(marks.count_nonzero()) != sum(leaf.numel() for leaf in group):
            return True
    return False


def _share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not other.numel() or one.device != other.device:
        return False
    first, second = one.untyped_storage(), other.untyped_storage()
    return first.data_ptr() < second.data_ptr() + second.nbytes() and second.data_ptr() < (
        first.data_ptr() + first.nbytes()
    )


def dirty_free_memory(places: Sequence[dict[str, Any]], device: torch.device) -> None:
    """Fill the free blocks in which outputs would be allocated with NaN.

    Otherwise an output that is never written may hold the correct result of an earlier call, and a launch that failed
    silently would pass.
    """
    blocks = [torch.empty(place["shape"], dtype=dtype_named(place["dtype"]), device=device) for place in places]
    poison(blocks)
