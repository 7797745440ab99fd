"""Sizes that a problem's author did not choose, drawn from an explicit `Random`.

Each kind finds another mistake of a kernel that was made for one shape: tails that are not masked (odd, prime), blocks
larger than the whole (small), strides and grids of fixed lengths (all), a batch that must fill the device (batch of 1),
and loops that end where the problem ended (longer).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kbevolve.evaluators.generality.dimensions import Dimension

#: Elements of inputs, weights and outputs together: of the ordinary kinds, and where one axis is longer than nominal.
ORDINARY_ELEMENTS = 1 << 22
LONG_ELEMENTS = 1 << 26
#: Bounds of one ordinary size; the upper one is lower where the product of all would exceed `_PRODUCT`.
_LEAST, _MOST, _PRODUCT = 8, 257, 1 << 20
_SMALL = tuple(range(2, 10))
#: Where the model refuses a size, the next multiple of one of these may do: groups and heads divide channels.
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)

Sizes = Mapping[str, int]
#: Whether the model runs at these sizes, with so many elements at most.
Runs = Callable[[Sizes, int], bool]
#: Draws a value for every size; an ordinary one is at most the argument.
Draw = Callable[[int], dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSizes:
    """Values for all sizes of a problem."""

    #: "odd", "batch of 1", "longer N", …
    kind: str
    sizes: Sizes


def draw_sizes(dimensions: Sequence[Dimension], runs: Runs, rng: Random) -> Iterator[DrawnSizes]:
    """One draw of each kind at which the model runs; a kind without one is left out.

    Args:
        dimensions: the sizes of the problem; at least one.
        runs: whether the model runs.
        rng: the same state gives the same sizes.
    """
    nominal = {one.name: one.nominal for one in dimensions}
    seen = [nominal]
    for kind, draw, most_elements in _kinds(dimensions, rng):
        wanted, sizes = _drawn(draw, nominal, runs, most_elements)
        if sizes is not None and sizes not in seen:
            seen.append(sizes)
            yield DrawnSizes(kind=kind if sizes == wanted else f"{kind}, rounded", sizes=sizes)


def _kinds(dimensions: Sequence[Dimension], rng: Random) -> Iterator[tuple[str, Draw, int]]:
    """Each kind, how its values are drawn, and the most elements."""
    names = [one.name for one in dimensions]

    def of(population: Callable[[range], Sequence[int]], **fixed: int) -> Draw:
        def draw(most: int) -> dict[str, int]:
            values = _different(population(range(_LEAST, most + 1)), len(names), rng)
            return dict(zip(names, values, strict=True)) | fixed

        return draw

    def small(ordinary: range) -> Sequence[int]:
        return _SMALL

    def odd(ordinary: range) -> Sequence[int]:
        return [size for size in ordinary if size % 2 and not is_prime(size)]

    yield "small", of(small), ORDINARY_ELEMENTS
    yield "odd", of(odd), ORDINARY_ELEMENTS
    yield "prime", of(lambda ordinary: [size for size in ordinary if is_prime(size)]), ORDINARY_ELEMENTS
    yield "power of two", of(lambda ordinary: [size for size in ordinary if not size & (size - 1)]), ORDINARY_ELEMENTS
    if leading := {one.name: 1 for one in dimensions if one.leads}:
        yield "batch of 1", of(odd, **leading), ORDINARY_ELEMENTS
    for one in dimensions:
        yield f"longer {one.name}", of(small, **{one.name: next_prime(one.nominal)}), LONG_ELEMENTS


def _drawn(draw: Draw, nominal: Sizes, runs: Runs, most_elements: int) -> tuple[dict[str, int], dict[str, int] | None]:
    """The values drawn, and those to be judged: None where all are too many elements, an axis may count twice."""
    most = min(_MOST, int(_PRODUCT ** (1 / len(nominal))))
    while True:
        wanted = draw(max(most, 2 * _LEAST))
        sizes = _settled(wanted, nominal, runs, most_elements)
        if sizes is not None or most < 2 * _LEAST:
            return wanted, sizes
        most //= 2


def _different(population: Sequence[int], count: int, rng: Random) -> list[int]:
    """As many values as asked for, different ones while there are some: equal axes hide that two were exchanged."""
    if count > len(population):
        return rng.choices(population, k=count)
    return rng.sample(population, count)


def _settled(wanted: dict[str, int], nominal: Sizes, runs: Runs, most_elements: int) -> dict[str, int] | None:
    """The wanted values, or those next to them at which the model runs; None where these are too many elements.

    Where the model refuses a value, and each multiple above it, the size stays nominal.
    """
    if runs(wanted, most_elements):
        return wanted
    found = dict(nominal)
    for name, value in wanted.items():
        for multiple in _MULTIPLES:
            tried = {**found, name: math.ceil(value / multiple) * multiple}
            if runs(tried, 1 << 62):
                found = tried
                break
    return found if runs(found, most_elements) else None


def is_prime(number: int) -> bool:
    """Whether a positive number is prime."""
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def next_prime(number: int) -> int:
    """The first prime above a number."""
    return next(larger for larger in range(number + 1, 2 * number + 3) if is_prime(larger))
