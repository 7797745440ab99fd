"""Functions of pools: the largest number or the mean of each window."""

import math
from collections.abc import Sequence
from dataclasses import replace

from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import behind
from kbevolve.evolve.proposers.seeds.cpp.endings import ending, fused
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, nested
from kbevolve.evolve.proposers.seeds.cpp.rows import rows
from kbevolve.evolve.proposers.seeds.cpp.windows import LONGEST_ROW, each, is_contiguous, struct_of, windows
from kbevolve.evolve.proposers.seeds.expressions import CPP


def pool(graph: Graph, region: Region, done: frozenset[str]) -> Function:
    """The function of a pool; raises NotCoveredError.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before.
    """
    constants = region.constants
    if all(size == 1 for size in constants.get("output_size", (0,))):
        return rows(graph, region, done)
    source, (result,) = region.operands[0], region.outputs
    shape, out = source.spec.shape, result.spec.shape
    if "output_size" in constants:
        region, kernel = _of_equal_windows(region, shape, out)
    else:
        kernel = each(constants["kernel_size"], int("".join(filter(str.isdigit, region.form))))
    usual = is_contiguous(shape, source.spec.stride) and is_contiguous(out, result.spec.stride)
    split = len(shape) - len(kernel)
    if not usual or shape[-1] > LONGEST_ROW or {source.spec.dtype, result.spec.dtype} != {"float32"} or split < 0:
        raise NotCoveredError(f"{region.name}: its tensors are too long, or not in the usual order")
    largest = "max" in region.form
    after = behind(graph, region, done, first=1)
    struct = f"{region.name}_windows"
    value = "value" if largest else f"value * {CPP.number(1 / _count(region, kernel))}"
    finish = [f"const vec sum = {value};", *ending(graph, region, after, None, split, row="plane")]
    planes = math.prod(shape[:split])
    how = "MAXIMUM" if largest else "SUM"
    head = f"pools<{struct}, {how}>(a0, {planes}, threads, [=](long plane, long j, vec value, int lanes) INLINE"
    return fused(
        graph,
        region,
        after,
        reads={"a0": source.value},
        body=nested(head, finish),
        before=["namespace {", *struct_of(struct, windows(region, shape[split:], out[split:], kernel)), "}"],
        needs=("rows", "pooling"),
    )


def _of_equal_windows(region: Region, shape: Sequence[int], out: Sequence[int]) -> tuple[Region, tuple[int, ...]]:
    """An adaptive pool as a pool, where its windows are equal."""
    rank = len(region.constants["output_size"])
    pairs = list(zip(shape[-rank:], out[-rank:], strict=True))
    if any(inside % outside for inside, outside in pairs):
        raise NotCoveredError(f"{region.name}: windows of several sizes")
    kernel = tuple(inside // outside for inside, outside in pairs)
    return replace(region, constants={"stride": kernel}), kernel


def _count(region: Region, kernel: Sequence[int]) -> int:
    """The number by which a sum is divided."""
    constants = region.constants
    padded = any(each(constants.get("padding"), len(kernel)))
    if constants.get("ceil_mode") or (padded and not constants.get("count_include_pad", True)):
        raise NotCoveredError(f"{region.name}: windows are divided by several counts")
    return constants.get("divisor_override") or math.prod(kernel)
