"""The weights of trials and timed calls: none that a constructor's default explains, so a kernel has to read them.

A gate of 0, an identity matrix and the statistics of a new batch norm are the same under every seed. A kernel that
leaves out what they cancel is right for an untrained model only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import torch

#: Factors of numbers that are not zero are drawn from 1 - _SPREAD to 1 + _SPREAD: signs, zeros (masks, triangles) and
#: infinities stay.
_SPREAD = 0.5
#: Standard deviation of what is added to a tensor of zeros.
_FROM_ZERO = 0.25
#: Most states that are tried to find the changes that a reference accepts.
_MOST_TRIES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of one construction."""

    #: Seed that `Model` was constructed with, and `ModelNew` is.
    seed: int
    #: The reference's state, by name.
    tensors: dict[str, torch.Tensor]


def mixed(one: Weights, other: Weights, *, seed: int) -> Weights:
    """Weights between the two, in a proportion of its own for each tensor; integers and the construction's seed are
    those of the first."""
    rng = Random(seed)
    tensors = {
        name: torch.lerp(tensor, other.tensors[name], rng.random()) if tensor.is_floating_point() else tensor
        for name, tensor in one.tensors.items()
    }
    return Weights(seed=one.seed, tensors=tensors)


def varied(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], *, seed: int
) -> dict[str, torch.Tensor]:
    """The second state, with every floating tensor changed that is the same under both seeds.

    Args:
        first: state by name, constructed with one seed.
        second: the same names, constructed with another.
        seed: of the changes.
    """
    return {
        name: _changed(tensor, seed + number) if _is_default(first[name], tensor) else tensor
        for number, (name, tensor) in enumerate(second.items())
    }


def accepted_changes(
    plain: Mapping[str, torch.Tensor],
    changed: Mapping[str, torch.Tensor],
    accepts: Callable[[dict[str, torch.Tensor]], bool],
) -> dict[str, torch.Tensor]:
    """The plain state with as many changes as the reference accepts; one that it refuses spoils no other.

    Args:
        plain: state by name.
        changed: the same names; the reference refuses all changes together.
        accepts: whether it accepts a state.
    """
    found = dict(plain)
    names = [name for name in plain if changed[name] is not plain[name]]
    waiting, tries = _halves(names), 0
    while waiting and tries < _MOST_TRIES:
        tries += 1
        some = waiting.pop()
        if accepts(attempt := {**found, **{name: changed[name] for name in some}}):
            found = attempt
        else:
            waiting += _halves(some)
    return found


def _halves(names: list[str]) -> list[list[str]]:
    middle = len(names) // 2
    return [names[:middle], names[middle:]] if middle else []


def amplified(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], factors: Mapping[str, float]
) -> dict[str, torch.Tensor]:
    """The second state, with every floating tensor that the seed decides times its factor, if it has one."""
    return {
        name: tensor * factors[name]
        if name in factors and tensor.is_floating_point() and not _is_default(first[name], tensor)
        else tensor
        for name, tensor in second.items()
    }


def _is_default(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.is_floating_point() and bool(one.numel()) and torch.equal(one, other)


def _changed(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(tensor.device).manual_seed(seed % (1 << 63))
    if not bool(tensor.count_nonzero()):
        noise = torch.randn(tensor.shape, generator=generator, device=tensor.device)
        return (_FROM_ZERO * noise).to(tensor.dtype)
    factors = 1 + _SPREAD * (2 * torch.rand(tensor.shape, generator=generator, device=tensor.device) - 1)
    return tensor * factors.to(tensor.dtype)
