"""Python values in messages: plain values as JSON, tensors as numbered places in shared memory. Nothing is pickled.

KernelBench's level 4 gives its models a configuration of transformers, which travels as its fields.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: Every tensor starts at a multiple of this many bytes, the widest alignment that kernels rely on (CUDA's allocator).
ALIGNMENT = 256


#: Containers that compute nothing when they are read; torch's functions return some, e.g. `torch.max` over a dimension.
_RETURN_TYPES = frozenset(kind for kind in [*vars(torch.return_types).values(), OrderedDict] if isinstance(kind, type))


class Unpackable(TypeError):
    """A value of a type that a message cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """The place of a tensor in shared memory, and how to read it."""

    #: Bytes from the start.
    offset: int
    shape: Sequence[int]
    #: Elements, as in `torch.Tensor.stride`.
    stride: Sequence[int]
    #: Name without "torch.", e.g. "float32".
    dtype: str

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """The tensor in `memory` (uint8, one axis), not copied."""
        dtype = dtype_named(self.dtype)
        count = 1
        for size in self.shape:
            count *= size
        flat = memory[self.offset : self.offset + count * dtype.itemsize].view(dtype)
        return flat.as_strided(self.shape, self.stride) if count else flat.view(self.shape)


def lay_out(tensors: Iterable[torch.Tensor], *, start: int = 0) -> tuple[list[SharedTensor], int]:
    """Places for tensors one after another from byte `start`, and the first free byte after them.

    The strides of a tensor without gaps are kept, so a transposed input stays transposed.
    """
    places = []
    for tensor in tensors:
        start = -(-start // ALIGNMENT) * ALIGNMENT
        # preserve_format keeps only dense strides. Torch imports sympy for it, which takes two seconds.
        dense = tensor if tensor.is_contiguous() else torch.empty_like(tensor, device="meta")
        place = SharedTensor(
            offset=start, shape=tuple(tensor.shape), stride=tuple(dense.stride()), dtype=dtype_name(tensor.dtype)
        )
        places.append(place)
        start += tensor.numel() * tensor.element_size()
    return places, -(-start // ALIGNMENT) * ALIGNMENT


def pack(value: Any, tensors: list[torch.Tensor], *, exact: bool = False) -> Any:
    """`value` as JSON; tensors are appended to `tensors`, and their index is packed. Else raises `Unpackable`.

    With `exact`, subclasses of containers are refused, but torch's and Python's own: others may compute when they are
    read.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    kind = next((kind for kind in (list, tuple, dict) if isinstance(value, kind)), None)
    if kind is None or (exact and type(value) is not kind and type(value) not in _RETURN_TYPES):
        if isinstance(value, torch.dtype):
            return {"dtype": dtype_name(value)}
        if not exact and type(value).__module__.startswith("transformers."):
            return {"config": _fields_of(value)}
        raise Unpackable(f"a {type(value).__name__}")
    if kind is dict:
        pairs = [[pack(key, tensors, exact=exact), pack(item, tensors, exact=exact)] for key, item in value.items()]
        return {"dict": pairs}
    return {kind.__name__: [pack(item, tensors, exact=exact) for item in value]}


def unpack(tree: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The value that `pack` wrote, with these tensors."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "list":
            return [unpack(item, tensors) for item in content]
        case "tuple":
            return tuple(unpack(item, tensors) for item in content)
        case "dict":
            return {unpack(key, tensors): unpack(item, tensors) for key, item in content}
        case "dtype":
            return dtype_named(content)
        case "config":
            from transformers import AutoConfig  # an extra

            return AutoConfig.for_model(**content)
    raise ValueError(f"{kind!r} is no kind of value")


def _fields_of(value: Any) -> dict[str, Any]:
    """What a configuration of transformers consists of, as JSON; other objects of it are no values."""
    fields = json.loads(value.to_json_string(use_diff=False)) if hasattr(value, "to_json_string") else {}
    if not isinstance(fields, dict) or not fields.get("model_type"):
        raise Unpackable(f"a {type(value).__name__}")
    return fields


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """``"float32"`` as ``torch.float32``."""
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return dtype
