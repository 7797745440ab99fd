"""A computation too large for memory, done for some samples of the batch at a time, if it can be.

It can when no sample's output depends on other samples. That is tried out: pairs of samples computed alone must give
what they gave in the whole batch. Pairs, because two show most: a mean over the batch is hardly noticed missing in a
half of it.
"""

from collections.abc import Callable, Sequence

import torch

from kbevolve.configs.errors import EvaluatorError

#: Tensors of the input -> tensors of the output.
Compute = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
#: Of a tensor whose copy in fp64 might not fit.
_PIECES = 64


def separable_inputs(
    compute: Compute, tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, tolerance: float
) -> tuple[int, ...] | None:
    """Indices of the inputs that can be cut along their first axis together with all outputs; None when none can.

    Args:
        compute: the computation, in a precision in which it fits.
        tensors: its inputs, whole.
        outputs: what it gives for them.
        tolerance: largest relative difference (of what is left when the mean is taken off) that rounding may cause.
    """
    if not all(output.ndim for output in outputs) or len({output.shape[0] for output in outputs}) != 1:
        return None
    batch = outputs[0].shape[0]
    fitting = tuple(index for index, tensor in enumerate(tensors) if tensor.ndim and tensor.shape[0] == batch)
    if batch < 4 or not fitting:
        return None
    # A weight may have as many rows as there are samples, so each input is also tried alone.
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
        except (EvaluatorError, ValueError):  # of the code, or in the number of outputs
            continue
    return None


def compute_in_slices(
    compute: Compute, tensors: Sequence[torch.Tensor], chosen: Sequence[int], *, pieces: int
) -> list[torch.Tensor]:
    """The outputs, put together from slices of the inputs in `chosen`.

    Args:
        compute: the computation, in a precision in which the whole does not fit.
        tensors: its inputs, whole.
        chosen: what `separable_inputs` found.
        pieces: number of slices to begin with; twice as many whenever memory runs out.

    Raises:
        EvaluatorError: the computation fails, or not even one sample fits.
    """
    batch = tensors[chosen[0]].shape[0]
    while True:
        rows = -(-batch // pieces)
        try:
            return _put_together(compute, tensors, chosen, batch, rows)
        except EvaluatorError as error:
            if not is_out_of_memory(error.__cause__) or rows == 1:
                raise
        if tensors[chosen[0]].is_cuda:
            torch.cuda.empty_cache()
        pieces *= 2


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out; on the CPU torch has no exception of its own for that."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def _put_together(
    compute: Compute, tensors: Sequence[torch.Tensor], chosen: Sequence[int], batch: int, rows: int
) -> list[torch.Tensor]:
    outputs: list[torch.Tensor] = []
    for start in range(0, batch, rows):
        parts = compute(_cut(tensors, chosen, start, start + rows))
        outputs = outputs or [part.new_empty((batch, *part.shape[1:])) for part in parts]
        for output, part in zip(outputs, parts, strict=True):
            output[start : start + rows] = part
    return outputs


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
    """Of what is finite; piece by piece, for memory is too short for another copy of it."""
    pieces = torch.split(tensor, -(-tensor.shape[0] // _PIECES))
    return sum(float(piece.double().nan_to_num(0.0, 0.0, 0.0).sum()) for piece in pieces) / max(tensor.numel(), 1)
