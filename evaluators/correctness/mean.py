"""The mean of the truth over draws of the inputs, of which one at a time has to be in memory."""

from collections.abc import Sequence

import torch


class MeanOfTruth:
    """Sums of output tensors."""

    def __init__(self, *, narrow: bool = False) -> None:
        """`narrow`: add up in fp32, which is precise enough for a mean, where memory is short."""
        self._narrow = narrow
        self._sums: list[torch.Tensor | None] = []
        self._draws = 0

    def add(self, truth: Sequence[torch.Tensor]) -> None:
        """Add the truth of one more draw, which is not kept."""
        self._draws += 1
        if not self._sums:
            self._sums = [
                (tensor.float() if self._narrow else tensor.clone()) if tensor.is_floating_point() else None
                for tensor in truth
            ]
            return
        for total, tensor in zip(self._sums, truth, strict=True):
            if total is not None:
                total += tensor

    def take(self) -> list[torch.Tensor | None]:
        """The mean of each output tensor, None for integers and booleans. No draw may be added afterwards."""
        return [None if total is None else total.div_(self._draws) for total in self._sums]
