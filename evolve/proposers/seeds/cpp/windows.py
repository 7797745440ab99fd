"""Which numbers of the input the places of an output meet: windows of convolutions and of pools."""

from collections.abc import Sequence
from dataclasses import dataclass

from kbevolve.evaluators.graph.records import Region

_AXES = "DHW"
#: Numbers of a row that a function may hold on its stack: 1 MB.
LONGEST_ROW = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Places of the output along one axis that meet the same taps: numbers of a struct that C++ templates read."""

    #: Size of the input.
    inside: int
    #: Number of places, the whole size that they are a part of, the first one, and the distance to the next.
    outside: int
    whole: int
    first: int
    every: int
    #: Place x meets number x * step + tap.
    step: int
    taps: tuple[int, ...]
    #: Which numbers of the kernel the taps are.
    weights: tuple[int, ...]

    def lines(self, axis: str) -> list[str]:
        """Members of a C++ struct."""
        numbers = {"IN": self.inside, "OUT": self.outside, "WHOLE": self.whole, "FIRST": self.first}
        numbers |= {"EVERY": self.every, "STEP": self.step, "TAPS": len(self.taps)}
        named = ", ".join(f"{name}_{axis} = {number}" for name, number in numbers.items())
        lists = {"TAP": self.taps, "WEIGHT": self.weights}
        listed = ", ".join(f"{name}_{axis}[] = {{{', '.join(map(str, own))}}}" for name, own in lists.items())
        return [f"static constexpr long {named};", f"static constexpr long {listed};"]


def struct_of(name: str, places: Sequence[Places]) -> list[str]:
    """Lines of a C++ struct for one to three axes: the first of three may have one place and one tap."""
    one = Places(inside=1, outside=1, whole=1, first=0, every=1, step=1, taps=(0,), weights=(0,))
    axes = zip([*[one] * (3 - len(places)), *places], _AXES, strict=True)
    return [f"struct {name} {{", *(f"  {line}" for own, axis in axes for line in own.lines(axis)), "};"]


def each(value: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """A number for each axis; 0 where none is given."""
    values = (value,) if isinstance(value, int) else tuple(value or (0,))
    return values * rank if len(values) == 1 else values


def windows(region: Region, inside: Sequence[int], whole: Sequence[int], kernel: Sequence[int]) -> list[Places]:
    """Windows of a convolution that is not transposed, or of a pool: each place of every axis.

    Args:
        region: with stride, padding and, where it has one, dilation for every axis.
        inside: sizes of the input's planes.
        whole: sizes of the output's.
        kernel: sizes of a window.
    """
    numbers = {name: each(region.constants.get(name), len(kernel)) for name in ("stride", "dilation", "padding")}
    found = []
    for axis, width in enumerate(kernel):
        step, dilation, padding = numbers["stride"][axis], numbers["dilation"][axis] or 1, numbers["padding"][axis]
        found.append(
            Places(
                inside=inside[axis],
                outside=whole[axis],
                whole=whole[axis],
                first=0,
                every=1,
                step=step or width,
                taps=tuple(tap * dilation - padding for tap in range(width)),
                weights=tuple(range(width)),
            )
        )
    return found


def transposed_windows(region: Region, inside: Sequence[int], whole: Sequence[int]) -> list[list[Places]]:
    """Windows of a transposed convolution: for each axis the places of each remainder of its step."""
    constants = region.constants
    axes = []
    for axis, width in enumerate(constants["kernel"]):
        step, dilation, padding = (constants[name][axis] for name in ("stride", "dilation", "padding"))
        parts = []
        for first in range(min(step, whole[axis])):
            meets = [tap for tap in range(width) if (first + padding - tap * dilation) % step == 0]
            parts.append(
                Places(
                    inside=inside[axis],
                    outside=len(range(first, whole[axis], step)),
                    whole=whole[axis],
                    first=first,
                    every=step,
                    step=1,
                    # A remainder without a tap gets one beyond the input: its places are the bias alone.
                    taps=tuple((first + padding - tap * dilation) // step for tap in meets) or (inside[axis],),
                    weights=tuple(meets) or (0,),
                )
            )
        axes.append(parts)
    return axes


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a tensor lies in memory in the order of its axes, without gaps."""
    expected = 1
    for size, own in zip(reversed(shape), reversed(stride), strict=True):
        if size > 1 and own != expected:
            return False
        expected *= size
    return True
