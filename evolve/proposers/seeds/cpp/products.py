"""Functions of products, with the bias and the pointwise region behind them."""

import math
from collections.abc import Sequence

from kbevolve.evaluators.graph.records import Axis, Contraction, Graph, Operand, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import behind
from kbevolve.evolve.proposers.seeds.cpp.endings import ending, fused
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, nested_arguments
from kbevolve.evolve.proposers.seeds.cpp.spaces import offset

#: Below so many rows or columns packing costs as much as the product.
_LEAST = 4


def product(graph: Graph, region: Region, done: frozenset[str]) -> Function:
    """The function of a product; raises NotCoveredError.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before.
    """
    found = region.contraction
    if found is None or any(region.constants.get(name, 1) != 1 for name in ("alpha", "beta")):
        raise NotCoveredError(f"{region.name}: not one product")
    matrices, m, n, k = found.sizes
    if min(m, n) < _LEAST or not k:
        raise NotCoveredError(f"{region.name}: {m} x {n} x {k} is too small to pack")
    left, right, bias = _operands(region)
    split = _rows_and_columns(region, found)
    after = behind(graph, region, done, first=3)
    starts = {side: _operand(name, found.batch, side) for name, side in (("a0", "left"), ("a1", "right"))}
    strides = {
        side: (_stride(found.k, side), _stride(own, side)) for side, own in (("left", found.m), ("right", found.n))
    }
    step, row = strides["left"]
    deep, along = strides["right"]
    place = "" if not along else " + j" if along == 1 else f" + j * {along}"
    finish = ending(graph, region, after, bias, split, row=f"b * {m} + i")
    lines = nested_arguments(
        f"products({matrices}, {m}, {n}, {k}, threads",
        [
            [f"[=](long b) INLINE {{ return Strided<{row}, {step}>{{{starts['left']}}}; }}"],
            [
                "[=](long b, long j, long n, float* to) INLINE {",
                f"  pack<{deep}, {along}>({starts['right']}{place}, {k}, n, to);",
                "}",
            ],
            ["[=](long b, long i, long j, vec sum, int lanes) INLINE {", *(f"  {line}" for line in finish), "}"],
        ],
    )
    reads = {"a0": left.value, "a1": right.value, **({"a2": bias.value} if bias else {})}
    return fused(graph, region, after, reads=reads, body=lines, needs=("product",))


def _operands(region: Region) -> tuple[Operand, Operand, Operand | None]:
    by_role = {operand.role: operand for operand in region.operands}
    bias = by_role.pop("bias", None)
    if set(by_role) != {"left", "right"} or any(one.spec.dtype != "float32" for one in region.operands):
        raise NotCoveredError(f"{region.name}: reads {', '.join(by_role)}")
    return by_role["left"], by_role["right"], bias


def _rows_and_columns(region: Region, found: Contraction) -> int:
    """Number of the result's axes that are rows: they count through matrices and rows, the others through columns."""
    batch, m, n, _ = found.sizes
    (result,) = region.outputs
    expected = 1
    for axis in reversed((*found.batch, *found.m, *found.n)):
        if axis.size > 1 and axis.out != expected:
            raise NotCoveredError(f"{region.name}: a result in another order")
        expected *= axis.size
    if len(found.m) > 1 or len(found.n) > 1 or len(found.k) > 1 or result.spec.dtype != "float32":
        raise NotCoveredError(f"{region.name}: rows, columns or sums over several axes")
    shape = result.spec.shape
    for split in range(len(shape) + 1):
        if math.prod(shape[:split]) == batch * m and math.prod(shape[split:]) == n:
            return split
    raise NotCoveredError(f"{region.name}: a result of {shape}")


def _operand(name: str, batch: Sequence[Axis], tensor: str) -> str:
    """C++: where matrix b of an operand begins."""
    start = offset([axis.size for axis in batch], [getattr(axis, tensor) for axis in batch], "b")
    return name if start == "0" else f"{name} + {start}"


def _stride(axes: Sequence[Axis], tensor: str) -> int:
    """The distance of neighbours along the only axis of an index."""
    return getattr(axes[0], tensor) if axes else 0
