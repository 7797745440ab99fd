"""The distributions of inputs: as the problem draws them, and transformed so that shortcuts fail.

A problem's own inputs are often positive and of one size (``torch.rand``): half precision, a skipped branch or one
remembered answer can pass on them. A transform keeps what kernels may rely on: zeros (so diagonals and triangles),
symmetry, integers, and the spacing of floating-point numbers, because all factors are powers of two.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice

import torch

from kbevolve.evaluators.correctness.rule import (
    DIMINISHED_EXPONENT,
    ENLARGED_EXPONENT,
    OUTLIER_EXPONENTS,
    SCALE_EXPONENT,
)

#: An input tensor and a generator on its device -> the transformed tensor.
Transform = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Only:
    """A transform of one input; the others are as drawn."""

    transform: Transform
    #: Among the tensors of the inputs.
    index: int


#: How the inputs of a draw are distributed.
Distribution = Transform | Only


def transformed(
    transform: Distribution, tensors: Sequence[torch.Tensor], generator: torch.Generator
) -> list[torch.Tensor]:
    """Each tensor transformed, or only one of them.

    Of several tensors that become `special` or `outlying`, a random one has the largest elements. A kernel that scales
    each operand by a power of two is honest, and loses what is 2^40 times smaller: in a product of two such operands
    that would be most of the answer.
    """
    if isinstance(transform, Only):
        one = transform
        return [
            one.transform(tensor, generator) if index == one.index else tensor for index, tensor in enumerate(tensors)
        ]
    found = [transform(tensor, generator) for tensor in tensors]
    if transform in (special, outlying):
        touched = [index for index, tensor in enumerate(tensors) if found[index] is not tensor]
        spared = int(torch.randint(len(touched), (1,), generator=generator, device=generator.device)) if touched else 0
        for index in (index for place, index in enumerate(touched) if place != spared):
            found[index] = _with_smaller_outliers(found[index], tensors[index])
    return found


def _with_smaller_outliers(changed: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """What `special` made of a tensor, with its finite outliers at the least size."""
    replaced = changed.isfinite() & (changed != before) & (changed.abs() > _LEAST)
    return torch.where(replaced, changed.sign() * _LEAST, changed)


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
    return _times(
        tensor, generator, exponent=DIMINISHED_EXPONENT - (round(math.log2(size)) if 0 < size < math.inf else 0)
    )


def _times(tensor: torch.Tensor, generator: torch.Generator, *, exponent: int, flip: bool = False) -> torch.Tensor:
    """Times 2^exponent; with `flip`, rows and columns also change sign at random."""
    if not _changeable(tensor):
        return tensor
    scaled = tensor * 2.0**exponent
    return _scaled(scaled, generator, exponents=(0, 0), flip=True) if flip else scaled


def _scaled(
    tensor: torch.Tensor, generator: torch.Generator, *, exponents: tuple[int, int], flip: bool
) -> torch.Tensor:
    """Independent factors for each axis; equal ones on both sides of a symmetric matrix."""
    if not _changeable(tensor):
        return tensor
    columns = _factors(tensor.shape[-1], tensor, generator, exponents, flip)
    scaled = tensor * columns
    symmetric = _symmetric(tensor)
    if symmetric:
        scaled *= columns.unsqueeze(-1)
    for axis in range(tensor.ndim - (2 if symmetric else 1)):
        # Between the first axis and the last, factors of 1/2 to 2: the products of all must stay in range.
        mild = exponents if axis == 0 else (max(exponents[0], -1), min(exponents[1], 1))
        factors = _factors(tensor.shape[axis], tensor, generator, mild, flip)
        scaled *= factors.view(-1, *[1] * (tensor.ndim - 1 - axis))
    return scaled


def special(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A few elements become NaN, infinite, -0, subnormal, or 2^20 to 2^40: what is finite must stay right.

    They stay in a sixteenth of the rows, so that a row of them, or a column, does not make the whole answer NaN. As far
    as these suffice, each has a row and a column of its own: a NaN beside an infinity would hide how it is treated.
    """
    if not _changeable(tensor) or tensor.numel() < _SPECIAL_SHARE:
        return tensor
    reach = max(len(_SPECIAL), tensor.numel() // _SPECIAL_SHARE)
    candidates = torch.randperm(reach, generator=generator, device=tensor.device)[: _CANDIDATES * len(_SPECIAL)]
    chosen = torch.tensor(_apart(candidates.tolist(), tensor.shape[-1])[: len(_SPECIAL)], device=tensor.device)
    limit = torch.finfo(tensor.dtype).max
    values = [value if not math.isfinite(value) else max(-limit, min(limit, value)) for value in _SPECIAL]
    numbers = torch.tensor(values, dtype=tensor.dtype, device=tensor.device)
    changed, places = tensor.clone(), _places(chosen, tensor.shape)
    # What is zero stays so: it may be a mask, or one half of a triangle.
    changed[places] = torch.where(tensor[places] == 0, 0, numbers)
    if _symmetric(tensor):
        changed.mT[places] = changed[places]
    return changed


def _apart(places: Sequence[int], width: int) -> list[int]:
    """Places by their number, those first that share neither row nor column with an earlier one."""
    rows: set[int] = set()
    columns: set[int] = set()
    first, rest = [], []
    for place in places:
        row, column = divmod(place, width)
        if row in rows or column in columns:
            rest.append(place)
        else:
            first.append(place)
            rows.add(row)
            columns.add(column)
    return first + rest


def outlying(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As `special`, without NaN and infinities: for answers that all elements go into."""
    changed = special(tensor, generator)
    return torch.where(changed.isfinite(), changed, tensor) if _changeable(tensor) else tensor


def alone(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One row, and a few elements elsewhere, change their signs and are scaled by 1/4 to 4: the rest is as drawn."""
    if not tensor.ndim or not tensor.numel() or tensor.is_complex():
        return tensor
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), 0)
    if not tensor.is_floating_point():
        return _with_two_exchanged(tensor, axis, generator)
    row = int(torch.randint(tensor.shape[axis], (1,), generator=generator, device=tensor.device))
    changed = tensor.clone()
    factors = _factors(tensor.shape[-1], tensor, generator, (-2, 2), True)
    changed.select(axis, row).mul_(factors if axis < tensor.ndim - 1 else -factors[row].abs())
    if _symmetric(tensor):
        changed, row = tensor.clone(), row % tensor.shape[-1]
        changed[..., row, :] *= 2
        changed[..., :, row] *= 2
        return changed
    few = _places(torch.randint(tensor.numel(), (_FEW,), generator=generator, device=tensor.device), tensor.shape)
    changed[few] *= -1
    return changed


def _places(flat: torch.Tensor, shape: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Indices along each axis of elements by their number."""
    # `torch.unravel_index` imports sympy at its first call: two seconds and more.
    places: list[torch.Tensor] = []
    for size in reversed(shape):
        places.append(flat % size)
        flat = flat // size
    return tuple(reversed(places))


def _with_two_exchanged(tensor: torch.Tensor, axis: int, generator: torch.Generator) -> torch.Tensor:
    """Two rows of integers or booleans in each other's place: every value stays one that the problem draws."""
    count = tensor.shape[axis]
    one, other = torch.randint(count, (2,), generator=generator, device=tensor.device).tolist()
    order = torch.arange(count, device=tensor.device)
    order[one], order[other] = other, one
    return tensor.index_select(axis, order)


def shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The elements in another order; where all are the same, other elements: smaller lengths, masks, random numbers."""
    if tensor.is_complex() or not tensor.numel():
        return tensor
    flat = tensor.reshape(-1)
    if not bool((flat == flat[0]).all()):
        return flat[torch.randperm(flat.numel(), generator=generator, device=flat.device)].view(tensor.shape)
    if tensor.is_floating_point():
        noise = torch.rand(tensor.shape, generator=generator, device=tensor.device).to(tensor.dtype)
        return tensor * (noise + 0.5) if bool(flat[0]) else noise - 0.5
    value = int(flat[0])
    low, high = (0, 1) if value in (0, 1) else (min(value, 1), max(value, -1))
    return torch.randint(low, high + 1, tensor.shape, generator=generator, device=tensor.device).to(tensor.dtype)


def _enlarged_integers(tensor: torch.Tensor, generator: torch.Generator, *, flip: bool) -> torch.Tensor:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool or not tensor.ndim:
        return tensor
    signs = 1 - 2 * torch.randint(0, 1 + flip, tensor.shape, generator=generator, device=tensor.device)
    limit = torch.iinfo(tensor.dtype).max
    factor = max(1, min(_ENLARGED_INTEGERS, limit // (2 * max(1, int(tensor.abs().max())))))
    return (tensor * signs * factor).to(tensor.dtype)


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
signed: Transform = partial(_scaled, exponents=(-SCALE_EXPONENT, SCALE_EXPONENT), flip=True)
#: Rows and columns are scaled by 1/4 to 1 each: for references defined only on [0, 1].
shrunk: Transform = partial(_scaled, exponents=(-2, 0), flip=False)
#: A random half of the rows as in `signed`, the others as drawn: a few rows do not show what the rest is.
heterogeneous: Transform = partial(_mixed, exponents=(-SCALE_EXPONENT, SCALE_EXPONENT), flip=True)
#: A random half of the rows as in `shrunk`, the others as drawn.
mixed_rows: Transform = partial(_mixed, exponents=(-2, 0), flip=False)
#: Scaled by 128, with random signs: exponentials overflow unless the kernel first subtracts the maximum.
enlarged: Transform = partial(_times, exponent=ENLARGED_EXPONENT, flip=True)
#: Scaled by 128, with the signs as drawn: for references defined only on positive numbers.
scaled_128x: Transform = partial(_times, exponent=ENLARGED_EXPONENT)
#: Scaled by 4, with random signs: where larger factors make the reference itself inaccurate.
scaled_4x: Transform = partial(_times, exponent=2, flip=True)
#: Scaled by 2^-9: where smaller inputs would vanish beside a bias, and for tasks in fp16.
scaled_512th: Transform = partial(_times, exponent=-9)
#: Scaled by 1/16.
scaled_16th: Transform = partial(_times, exponent=-4)
#: Integers change their signs at random and are enlarged 1000 times: floats no longer hold their sums exactly.
integers: Transform = partial(_enlarged_integers, flip=True)
#: Integers are enlarged 1000 times, with the signs as drawn.
larger_integers: Transform = partial(_enlarged_integers, flip=False)

_LEAST, _LARGEST = (2.0**exponent for exponent in OUTLIER_EXPONENTS)
#: Numbers that `special` writes; finite ones are clamped to the dtype's range.
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 1e-40, -1e-42, _LEAST, -(2.0**30), _LARGEST, -_LARGEST)
#: `special` changes elements in the first 1/16 of a tensor, chosen from this many times as many places.
_SPECIAL_SHARE = 16
_CANDIDATES = 8
#: Single elements that `alone` changes.
_FEW = 4
#: Factor of integers.
_ENLARGED_INTEGERS = 1000

#: Distributions of one trial each beside `KINDS`: the first usable alternative of each kind.
EXTRA_KINDS: tuple[tuple[Transform, ...], ...] = ((special, outlying), (integers, larger_integers))

#: Kinds of distributions beside the nominal one, the most revealing first. The judge takes the first alternative of a
#: kind on which the reference stays finite and accurate (`truth.is_usable`), and omits a kind without one.
KINDS: tuple[tuple[Transform, ...], ...] = (
    (signed, shrunk),
    (heterogeneous, mixed_rows),
    (enlarged, scaled_128x, scaled_4x),
    (diminished, scaled_512th, scaled_16th),
)


#: What messages call the inputs of a kind.
_WORDS: dict[Transform, str] = {
    nominal: "inputs as get_inputs() draws them",
    signed: "inputs of both signs and mixed sizes",
    shrunk: "inputs of mixed sizes",
    heterogeneous: "inputs of which half of the rows have mixed signs and sizes",
    mixed_rows: "inputs of which half of the rows have mixed sizes",
    enlarged: "large inputs (times 128, of both signs)",
    scaled_128x: "large inputs (times 128)",
    scaled_4x: "larger inputs (times 4, of both signs)",
    diminished: "tiny inputs (of the size of 2^-16)",
    scaled_512th: "small inputs (times 1/512)",
    scaled_16th: "small inputs (times 1/16)",
    special: "inputs with a few NaN, infinite, subnormal and huge numbers",
    outlying: "inputs with a few subnormal and huge numbers (up to 2^40)",
    alone: "inputs of which one row and a few elements differ from an earlier call's",
    shuffled: "one that every call has alike in another order, or with other elements",
    integers: "large integers of both signs",
    larger_integers: "large integers",
}


def describe_kind(distribution: Distribution, tensors: Sequence[torch.Tensor] = ()) -> str:
    """The kind of inputs in words; with the input tensors also whether all of their numbers have one sign."""
    if isinstance(distribution, Only):
        return f"{_WORDS[distribution.transform]} (input {distribution.index} only)"
    numbers = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    positive = bool(numbers) and all(bool((tensor >= 0).all()) for tensor in numbers)
    return _WORDS[distribution] + (", none negative" if positive else "")


def plan_transforms(trials: int, usable: Sequence[Distribution]) -> tuple[Distribution, ...]:
    """The distributions of the trials: nominal and transformed ones in turn, one of each usable kind.

    7 trials cover all four kinds once and the nominal distribution three times, of which `DrawPlanner` replaces some.
    """
    turn: list[Distribution] = list(chain.from_iterable((nominal, transform) for transform in usable)) or [nominal]
    if len(usable) > 2:
        del turn[-2]  # so that 7 trials are enough
    return tuple(islice(cycle(turn), trials))
