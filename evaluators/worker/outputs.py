"""The output of a candidate: its structure, and whether each tensor is a plain one."""

from collections.abc import Sequence
from typing import Any

import torch

from kbevolve.evaluators.worker.timing import poison
from kbevolve.evaluators.worker.values import Unpackable, dtype_name, dtype_named, pack


def describe(output: Any, inputs: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor], list[dict[str, Any]]]:
    """The structure of an output (`values.pack`), its tensors, and facts about each of them."""
    leaves: list[torch.Tensor] = []
    try:
        structure = pack(output, leaves)
    except Unpackable as error:
        return {"foreign": str(error)}, [], []
    return structure, leaves, [_facts(leaf, inputs) for leaf in leaves]


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
        "expanded": any(stride == 0 and size > 1 for stride, size in zip(leaf.stride(), leaf.shape, strict=True)),
        "aliases": any(_overlap(leaf, tensor) for tensor in inputs),
    }


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
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
