"""Functions of convolutions of one to three axes, transposed ones too: products over channels and taps.

A transposed convolution of step s is s products for each axis: places of the output with the same remainder meet the
same taps.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import behind
from kbevolve.evolve.proposers.seeds.cpp.endings import ending, fused
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, nested, nested_arguments
from kbevolve.evolve.proposers.seeds.cpp.windows import (
    LONGEST_ROW,
    Places,
    is_contiguous,
    struct_of,
    transposed_windows,
    windows,
)

#: Below so many channels of a group tiles of products are mostly empty.
_LEAST_CHANNELS = 4


def convolution(graph: Graph, region: Region, done: frozenset[str]) -> Function:
    """The function of a convolution; raises NotCoveredError.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before.
    """
    operands = {operand.role: operand for operand in region.operands}
    source, weight, bias = operands["input"], operands["weight"], operands.get("bias")
    (result,) = region.outputs
    constants, shape, out = region.constants, source.spec.shape, result.spec.shape
    groups = constants["groups"]
    usual = all(is_contiguous(one.spec.shape, one.spec.stride) for one in (source, weight, result))
    if len(shape) != len(constants["kernel"]) + 2 or not usual:
        raise NotCoveredError(f"{region.name}: its tensors are not in the usual order")
    if any(operand.spec.dtype != "float32" for operand in region.operands) or "padding_behind" in constants:
        raise NotCoveredError(f"{region.name}: another dtype, or a padding that differs behind")
    channels, made = shape[1] // groups, out[1] // groups
    few = made < _LEAST_CHANNELS
    if few and (constants["transposed"] or out[-1] > LONGEST_ROW):
        raise NotCoveredError(f"{region.name}: {made} channels in a group")
    after = behind(graph, region, done, first=3)
    name = f"{region.name}_kernel"
    sizes = _Sizes(
        matrices=shape[0] * groups,
        groups=groups,
        channels=channels,
        made=made,
        inside=math.prod(shape[2:]),
        kernel=constants["kernel"],
        transposed=constants["transposed"],
    )
    body: list[str] = []
    # In a namespace of its own: two libraries of one process would share constants of the same name.
    before = ["namespace {"]
    axes = [[one] for one in windows(region, shape[2:], out[2:], constants["kernel"])]
    if constants["transposed"]:
        axes = transposed_windows(region, shape[2:], out[2:])
    for number, places in enumerate(itertools.product(*axes)):
        if not all(one.outside for one in places):
            continue
        struct = f"{name}_places_{number}"
        before += struct_of(struct, places)
        scattered = any(one.every > 1 for one in places)
        found = ["long places[LANES];", f"find<{struct}>(j, lanes, places);"] if scattered else []
        row = "plane" if few else f"b * {made} + i"
        finish = ending(graph, region, after, bias, 2, row=row, channel=True, scattered=scattered)
        body += _direct(sizes, struct, finish) if few else _product(sizes, struct, places, [*found, *finish])
    if not body:
        raise NotCoveredError(f"{region.name}: nothing to compute")
    needs = ("direct",) if few else ("product", "convolution")
    reads = {"a0": source.value, "a1": weight.value, **({"a2": bias.value} if bias else {})}
    return fused(graph, region, after, reads=reads, body=body, before=[*before, "}"], needs=needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of a convolution: samples times groups, channels of a group, numbers of a plane of the input."""

    matrices: int
    groups: int
    channels: int
    made: int
    inside: int
    kernel: tuple[int, ...]
    transposed: bool

    def weights(self, struct: str, taps: int) -> str:
        """C++: the left operand of product b."""
        whole = math.prod(self.kernel)
        group = f" + b % {self.groups} * {self.made * self.channels * whole}" if self.groups > 1 else ""
        if not self.transposed:
            return f"Strided<{self.channels * whole}, 1>{{a1{group}}}"
        height, width = (1, 1, *self.kernel)[-2:]
        tap = f"tap<{struct}>(k % {taps}, {height * width}, {width})"
        place = f"(a1{group})[k / {taps} * {self.made * whole} + i * {whole} + {tap}]"
        return f"[=](long i, long k) INLINE {{ return {place}; }}"


def _product(sizes: _Sizes, struct: str, places: Sequence[Places], finish: Sequence[str]) -> list[str]:
    """The product that computes these places of the output."""
    taps, count = math.prod(len(one.taps) for one in places), math.prod(one.outside for one in places)
    return nested_arguments(
        f"products({sizes.matrices}, {sizes.made}, {count}, {sizes.channels * taps}, threads",
        [
            [f"[=](long b) INLINE {{ return {sizes.weights(struct, taps)}; }}"],
            [
                "[=](long b, long j, long n, float* to) INLINE {",
                f"  gather<{struct}>(a0 + b * {sizes.channels * sizes.inside}, {sizes.channels}, j, n, to);",
                "}",
            ],
            ["[=](long b, long i, long j, vec sum, int lanes) INLINE {", *(f"  {line}" for line in finish), "}"],
        ],
    )


def _direct(sizes: _Sizes, struct: str, finish: Sequence[str]) -> list[str]:
    """The sums that compute a convolution in groups of few channels."""
    counts = f"{sizes.matrices // sizes.groups}, {sizes.groups}, {sizes.channels}, {sizes.made}"
    return nested(
        f"direct<{struct}>(a0, a1, {counts}, threads, [=](long plane, long j, vec sum, int lanes) INLINE", finish
    )
