"""Functions of scans: prefix sums along any axis, and prefix products along the last one."""

import math

from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import behind, load, pointer, results_of, variable
from kbevolve.evolve.proposers.seeds.cpp.endings import fused
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, nested
from kbevolve.evolve.proposers.seeds.cpp.spaces import space_of
from kbevolve.evolve.proposers.seeds.cpp.windows import is_contiguous

_HOW = {"cumsum": "SUM", "cumprod": "PRODUCT"}


def scan(graph: Graph, region: Region, done: frozenset[str]) -> Function:
    """The function of a scan, with its epilogue; raises NotCoveredError.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before.
    """
    if region.form not in _HOW or len(region.operands) != 1 or len(region.outputs) != 1:
        raise NotCoveredError(f"{region.name}: {region.form}")
    (source,), (result,) = region.operands, region.outputs
    shape = source.spec.shape
    usual = all(is_contiguous(one.spec.shape, one.spec.stride) for one in (source, result))
    if not usual or {source.spec.dtype, result.spec.dtype} != {"float32"} or not source.spec.elements or not shape:
        raise NotCoveredError(f"{region.name}: its tensors are not fp32 in the usual order")
    axis = region.constants["dim"] % len(shape)
    rows, depth, beside = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    how = _HOW[region.form]
    if beside > 1 and how != "SUM":
        raise NotCoveredError(f"{region.name}: products down the columns")
    after = behind(graph, region, done, first=1)
    space = space_of(shape, after.strides, split=axis if beside == 1 else axis + 1)
    if space is None or any(stride not in (0, 1) for stride in space.inner_stride.values()):
        raise NotCoveredError(f"{region.name}: rows of its epilogue in pieces")
    row = "row" if beside == 1 else f"(row * {depth} + k)"
    finish = [pointer(name, "at", "", space.row_offset(name, row)) for name in space.inner_stride]
    finish += [f"const vec {variable(result.value)} = sum;", *after.loads(space, at="at"), *after.steps]
    finish += after.saves(space, results_of(graph), at="at")
    if beside == 1:
        value = f"[=](long j, int lanes) INLINE {{ return {load('from', 'j', 1)}; }}"
        call = f"scan<{how}>({depth}, {value}, [=](long j, vec sum, int lanes) INLINE"
        lines = [f"const float* from = a0 + row * {depth};", *nested(call, finish)]
        head = f"spread({rows}, 1, most(1, GRAIN / {depth}), threads, [=](long row, long, long) INLINE"
    else:
        value = f"[=](long k, long j, int lanes) INLINE {{ return {load(f'from + k * {beside}', 'j', 1)}; }}"
        call = f"scan_down({depth}, begin, end, {value}, [=](long k, long j, vec sum, int lanes) INLINE"
        lines = [f"const float* from = a0 + row * {depth * beside};", *nested(call, finish)]
        head = f"by_columns({rows}, {beside}, threads, [=](long row, long begin, long end) INLINE"
    return fused(graph, region, after, reads={"a0": source.value}, body=nested(head, lines), needs=("rows", "scans"))
