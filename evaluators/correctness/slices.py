"""Computes a batch that is too large for memory in slices, where no sample's output depends on other samples.

That is tested: pairs of samples computed alone must give their outputs of the whole batch. Pairs show a dependence
best: a mean over half of the batch hardly differs from the mean over all of it.
"""

from collections.abc import Callable, Sequence

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.memory import is_out_of_memory

#: Input tensors -> output tensors.
Compute = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
#: Pieces of a tensor whose copy in fp64 might not fit into memory.
_PIECES = 64


def separable_inputs(
    compute: Compute, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, tolerance: float
) -> tuple[int, ...] | None:
    """Indices of the inputs that can be sliced along their first axis together with all outputs; None for none.

    `compute` fits into memory. Rounding differs by at most `tolerance`, relative to the output minus its mean.
    """
    if not all(output.ndim for output in outputs) or len({output.shape[0] for output in outputs}) != 1:
        return None
    batch = outputs[0].shape[0]
    fitting = tuple(index for index, tensor in enumerate(tensors) if tensor.ndim and tensor.shape[0] == batch)
    if batch < 4 or not fitting:
        return None
    # A weight may have as many rows as the batch has samples, so each input is also tried alone.
    choices = [fitting, *((index,) for index in fitting)] if len(fitting) > 1 else [fitting]
    places = (0, batch // 2, batch - 2)
    for chosen in choices:
        try:
            if all(
                _agrees(part, output[start : start + 2], output, tolerance)
                for start in places
                for part, output in zip(compute(_cut(tensors, chosen, start, start + 2)), outputs, strict=True)
            ):
                return chosen
        except (EvaluatorError, ValueError):  # the code fails, or the number of outputs differs
            continue
    return None


def compute_in_slices(
    compute: Compute, tensors: Sequence[torch.Tensor], chosen: Sequence[int], *, pieces: int
) -> list[torch.Tensor]:
    """The outputs, joined from slices of the inputs `chosen` (`separable_inputs`).

    `pieces` is the first number of slices, doubled whenever memory runs out.

    Raises:
        EvaluatorError: the computation fails, or not even one sample fits.
    """
    batch = tensors[chosen[0]].shape[0]
    while True:
        rows = -(-batch // pieces)
        try:
            outputs: list[torch.Tensor] = []
            for start in range(0, batch, rows):
                parts = compute(_cut(tensors, chosen, start, start + rows))
                outputs = outputs or [part.new_empty((batch, *part.shape[1:])) for part in parts]
                for output, part in zip(outputs, parts, strict=True):
                    output[start : start + rows] = part
            return outputs
        except EvaluatorError as error:
            if not is_out_of_memory(error) or rows == 1:
                raise
        if tensors[chosen[0]].is_cuda:
            torch.cuda.empty_cache()
        pieces *= 2


def _cut(tensors: Sequence[torch.Tensor], chosen: Sequence[int], start: int, stop: int) -> list[torch.Tensor]:
    return [tensor[start:stop] if index in chosen else tensor for index, tensor in enumerate(tensors)]


def _agrees(part: torch.Tensor, same: torch.Tensor, whole: torch.Tensor, tolerance: float) -> bool:
    if part.shape != same.shape:
        return False
    if not part.is_floating_point():
        return torch.equal(part, same)
    if not torch.equal(part.isfinite(), same.isfinite()):
        return False
    part, same = (tensor.double().nan_to_num(0.0, 0.0, 0.0) for tensor in (part, same))
    return bool((part - same).norm() <= tolerance * (same - _mean(whole)).norm())


def _mean(tensor: torch.Tensor) -> float:
    """Mean of the finite elements, in pieces: memory is too short for a copy of the tensor."""
    pieces = torch.split(tensor, -(-tensor.shape[0] // _PIECES))
    return sum(float(piece.double().nan_to_num(0.0, 0.0, 0.0).sum()) for piece in pieces) / max(tensor.numel(), 1)
