"""Counts the bytes of the tensors of this thread that are alive, as a GPU's allocator would."""

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Tensors that were made while it is active. What an operation needs inside is not seen."""

    def __init__(self, *, least: int = 1 << 16) -> None:
        """`least`: bytes of the smallest tensor that counts."""
        super().__init__()
        self._least = least
        self._sizes: dict[int, int] = {}
        #: Bytes now, and the most so far.
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._sizes or storage.nbytes() < self._least:
            return
        self._sizes[key] = storage.nbytes()
        weakref.finalize(storage, self._remove, key)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)

    def _remove(self, key: int) -> None:
        self.now -= self._sizes.pop(key)
