"""The distributions that inputs are drawn from: as the problem draws them, and transformed so that shortcuts show.

A problem's own inputs are often all positive and all alike (``torch.rand``), where half precision, a skipped branch
or one remembered answer pass unseen. A transform keeps what kernels may rely on: zeros, hence diagonals and
triangles, symmetry, integers, and the spacing of floating-point numbers (factors are powers of two).
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain, cycle, islice

import torch

#: A tensor of inputs and a source of randomness on its device -> the tensor as it is used.
Transform = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def nominal(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As the problem draws it."""
    return tensor


def signed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows and columns change sign at random and are scaled by 1/4 to 4 each."""
    return _scaled(tensor, generator, exponents=(-2, 2), flip=True)


def shrunk(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows and columns are scaled by 1/4 to 1 each: for references that are defined on [0, 1] only."""
    return _scaled(tensor, generator, exponents=(-2, 0), flip=False)


def heterogeneous(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random half of the rows as in `signed`, the others as drawn: a look at a few rows tells nothing of the rest."""
    return _mixed(tensor, generator, exponents=(-2, 2), flip=True)


def mixed_rows(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random half of the rows as in `shrunk`, the others as drawn."""
    return _mixed(tensor, generator, exponents=(-2, 0), flip=False)


def enlarged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Everything 128 times as large, with random signs: exponentials overflow unless a maximum is taken off first."""
    return _flipped(_times(tensor, 7), generator)


def lifted(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Everything 128 times as large, with its own signs: for references that are defined on positive numbers only."""
    return _times(tensor, 7)


def scaled_4x(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Everything 4 times as large, with random signs: where more makes the reference itself inaccurate."""
    return _flipped(_times(tensor, 2), generator)


def diminished(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Scaled to a root mean square of 2^-16: a left-out epsilon shows, and so does fp16, which has 8 bits left there.

    Smaller would be unfair to products out of two fp16 parts of which the lower one is scaled by 2^11, as is usual
    (Ootomo and Yokota 2022): they have E = 2e-6 here, and 3e-4 at 2^-20.
    """
    if not _changeable(tensor) or not tensor.numel():
        return tensor
    size = float(tensor.float().square().mean().sqrt())
    return _times(tensor, -16 - (round(math.log2(size)) if 0 < size < math.inf else 0))


def scaled_512th(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Everything 2^-9 times as large: where less disappears beside a bias, and for tasks in fp16 itself."""
    return _times(tensor, -9)


def damped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Everything 1/16 times as large."""
    return _times(tensor, -4)


#: Kinds of distributions beside the nominal one, the most telling first. Of a kind's alternatives the first is used on
#: which the reference stays finite and accurate (`truth.is_bearable`); a kind without one is left out.
KINDS: tuple[tuple[Transform, ...], ...] = (
    (signed, shrunk),
    (heterogeneous, mixed_rows),
    (enlarged, lifted, scaled_4x),
    (diminished, scaled_512th, damped),
)


def draw_plan(trials: int, bearable: Sequence[Transform]) -> tuple[Transform, ...]:
    """The distributions of the trials: nominal ones and each of the others in turn.

    Args:
        trials: how many; with all four kinds, 7 hold each of them, and the nominal one three times.
        bearable: one transform of each kind that the reference bears, in the order of `KINDS`.
    """
    turn = list(chain.from_iterable((nominal, transform) for transform in bearable)) or [nominal]
    if len(bearable) > 2:
        del turn[-2]  # so that 7 trials are enough
    return tuple(islice(cycle(turn), trials))


def _times(tensor: torch.Tensor, exponent: int) -> torch.Tensor:
    return tensor * 2.0**exponent if _changeable(tensor) else tensor


def _flipped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _scaled(tensor, generator, exponents=(0, 0), flip=True)


def _scaled(
    tensor: torch.Tensor, generator: torch.Generator, *, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    """Factors of their own for the first and the last axis; the same ones on both sides of symmetric matrices."""
    if not _changeable(tensor):
        return tensor
    columns = _factors(tensor.shape[-1], tensor, generator, exponents, flip)
    scaled = tensor * columns
    symmetric = _symmetric(tensor)
    if symmetric:
        scaled = scaled * columns.unsqueeze(-1)
    if tensor.ndim > (2 if symmetric else 1):
        rows = _factors(tensor.shape[0], tensor, generator, exponents, flip)
        scaled = scaled * rows.view(-1, *[1] * (tensor.ndim - 1))
    return scaled


def _mixed(tensor: torch.Tensor, generator: torch.Generator, *, exponents: tuple[int, int], flip: bool) -> torch.Tensor:
    if not _changeable(tensor):
        return tensor
    # A batch of one is as good as no batch: its rows are the next axis'.
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), 0)
    count = tensor.shape[axis]
    chosen = torch.randperm(count, generator=generator, device=tensor.device) < (count + 1) // 2
    if axis >= tensor.ndim - 2 and _symmetric(tensor):
        factors = torch.where(chosen, _factors(count, tensor, generator, exponents, flip), 1)
        return tensor * factors * factors.unsqueeze(-1)
    chosen = chosen.view(-1, *[1] * (tensor.ndim - 1 - axis))
    return torch.where(chosen, _scaled(tensor, generator, exponents=exponents, flip=flip), tensor)


def _changeable(tensor: torch.Tensor) -> bool:
    """Integers stay in their range, and a number of no axis is a parameter rather than data."""
    return tensor.is_floating_point() and tensor.ndim > 0


def _symmetric(tensor: torch.Tensor) -> bool:
    square = tensor.ndim >= 2 and tensor.shape[-1] == tensor.shape[-2]
    return square and bool(torch.equal(tensor, tensor.mT))


def _factors(
    count: int, like: torch.Tensor, generator: torch.Generator, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    low, high = exponents
    powers = torch.randint(low, high + 1, (count,), generator=generator, device=like.device)
    factors = torch.ldexp(torch.ones(count, device=like.device, dtype=like.dtype), powers)
    if flip:
        factors = factors * (1 - 2 * torch.randint(0, 2, (count,), generator=generator, device=like.device))
    return factors.to(like.dtype)
