"""The distributions that inputs are drawn from: as the problem draws them, and transformed so that shortcuts show.

A problem's own inputs are often all positive and all alike (``torch.rand``), where half precision, a skipped branch
or one remembered answer pass unseen. A transform keeps what kernels may rely on: zeros, hence diagonals and
triangles, symmetry, integers, and the spacing of floating-point numbers (factors are powers of two).
"""

from collections.abc import Callable

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


#: Tried in this order; the first on which the reference stays finite and accurate is used.
TRANSFORMS: tuple[Transform, ...] = (signed, shrunk)


def _scaled(
    tensor: torch.Tensor, generator: torch.Generator, *, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.ndim:
        return tensor
    factors = _factors(tensor.shape[-1], tensor, generator, exponents, flip)
    scaled = tensor * factors
    if tensor.ndim >= 2:
        square = tensor.ndim == 2 and tensor.shape[0] == tensor.shape[1]
        symmetric = square and bool(torch.equal(tensor, tensor.T))
        rows = factors if symmetric else _factors(tensor.shape[0], tensor, generator, exponents, flip)
        scaled = scaled * rows.view(-1, *[1] * (tensor.ndim - 1))
    return scaled


def _factors(
    count: int, like: torch.Tensor, generator: torch.Generator, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    low, high = exponents
    powers = torch.randint(low, high + 1, (count,), generator=generator, device=like.device)
    factors = torch.ldexp(torch.ones(count, device=like.device, dtype=like.dtype), powers)
    if flip:
        factors = factors * (1 - 2 * torch.randint(0, 2, (count,), generator=generator, device=like.device))
    return factors.to(like.dtype)
