"""The distributions of inputs: as the problem draws them, and transformed so that shortcuts fail.

A problem's own inputs are often positive and of one size (``torch.rand``): half precision, a skipped branch or one
remembered answer can pass on them. A transform keeps what kernels may rely on: zeros (so diagonals and triangles),
symmetry, integers, and the spacing of floating-point numbers, because all factors are powers of two.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, cycle, islice

import torch

#: An input tensor and a generator on its device -> the transformed tensor.
Transform = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def nominal(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As the problem draws it."""
    return tensor


def diminished(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Scaled to a root mean square of 2^-16: shows a missing epsilon, and fp16, which has 8 bits left there.

    A smaller scale would reject honest products of two fp16 parts whose lower part is scaled by 2^11, as is usual
    (Ootomo and Yokota 2022): their E is 2e-6 here and 3e-4 at 2^-20.
    """
    if not _changeable(tensor) or not tensor.numel():
        return tensor
    size = float(tensor.float().square().mean().sqrt())
    return _times(tensor, generator, exponent=-16 - (round(math.log2(size)) if 0 < size < math.inf else 0))


def _times(tensor: torch.Tensor, generator: torch.Generator, *, exponent: int, flip: bool = False) -> torch.Tensor:
    """Times 2^exponent; with `flip`, rows and columns also change sign at random."""
    if not _changeable(tensor):
        return tensor
    scaled = tensor * 2.0**exponent
    return _scaled(scaled, generator, exponents=(0, 0), flip=True) if flip else scaled


def _scaled(
    tensor: torch.Tensor, generator: torch.Generator, *, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    """Independent factors for the first and the last axis; equal ones on both sides of a symmetric matrix."""
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
    # A batch of one has no rows to choose from: use the next axis.
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), 0)
    count = tensor.shape[axis]
    chosen = torch.randperm(count, generator=generator, device=tensor.device) < (count + 1) // 2
    if axis >= tensor.ndim - 2 and _symmetric(tensor):
        factors = torch.where(chosen, _factors(count, tensor, generator, exponents, flip), 1)
        return tensor * factors * factors.unsqueeze(-1)
    chosen = chosen.view(-1, *[1] * (tensor.ndim - 1 - axis))
    return torch.where(chosen, _scaled(tensor, generator, exponents=exponents, flip=flip), tensor)


def _changeable(tensor: torch.Tensor) -> bool:
    """Integers must stay in their range, and a tensor without axes is a parameter rather than data."""
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


#: Rows and columns change sign at random and are scaled by 1/4 to 4 each.
signed: Transform = partial(_scaled, exponents=(-2, 2), flip=True)
#: Rows and columns are scaled by 1/4 to 1 each: for references defined only on [0, 1].
shrunk: Transform = partial(_scaled, exponents=(-2, 0), flip=False)
#: A random half of the rows as in `signed`, the others as drawn: a few rows do not show what the rest is.
heterogeneous: Transform = partial(_mixed, exponents=(-2, 2), flip=True)
#: A random half of the rows as in `shrunk`, the others as drawn.
mixed_rows: Transform = partial(_mixed, exponents=(-2, 0), flip=False)
#: Scaled by 128, with random signs: exponentials overflow unless the kernel first subtracts the maximum.
enlarged: Transform = partial(_times, exponent=7, flip=True)
#: Scaled by 128, with the signs as drawn: for references defined only on positive numbers.
scaled_128x: Transform = partial(_times, exponent=7)
#: Scaled by 4, with random signs: where larger factors make the reference itself inaccurate.
scaled_4x: Transform = partial(_times, exponent=2, flip=True)
#: Scaled by 2^-9: where smaller inputs would vanish beside a bias, and for tasks in fp16.
scaled_512th: Transform = partial(_times, exponent=-9)
#: Scaled by 1/16.
scaled_16th: Transform = partial(_times, exponent=-4)

#: Kinds of distributions beside the nominal one, the most revealing first. The judge takes the first alternative of a
#: kind on which the reference stays finite and accurate (`truth.is_usable`), and omits a kind without one.
KINDS: tuple[tuple[Transform, ...], ...] = (
    (signed, shrunk),
    (heterogeneous, mixed_rows),
    (enlarged, scaled_128x, scaled_4x),
    (diminished, scaled_512th, scaled_16th),
)


def plan_transforms(trials: int, usable: Sequence[Transform]) -> tuple[Transform, ...]:
    """The distributions of the trials: nominal and transformed ones in turn, one of each usable kind.

    7 trials cover all four kinds once and the nominal distribution three times.
    """
    turn = list(chain.from_iterable((nominal, transform) for transform in usable)) or [nominal]
    if len(usable) > 2:
        del turn[-2]  # so that 7 trials are enough
    return tuple(islice(cycle(turn), trials))
