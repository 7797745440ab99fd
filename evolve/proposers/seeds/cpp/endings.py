"""What comes behind a region in the same function: its bias, and the pointwise region that alone reads its result."""

from collections.abc import Mapping, Sequence

from kbevolve.evaluators.graph.records import Graph, Operand, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import Chain, load, pointer, results_of, variable
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, function
from kbevolve.evolve.proposers.seeds.cpp.spaces import repeated, space_of


def ending(
    graph: Graph,
    region: Region,
    after: Chain,
    bias: Operand | None,
    split: int,
    *,
    row: str,
    channel: bool = False,
    scattered: bool = False,
) -> list[str]:
    """Statements that finish `lanes` sums of a row, from place j on, and write them.

    Args:
        graph: its graph.
        region: a product or a convolution.
        after: what is behind it.
        bias: its bias, parameter ``a2``.
        split: number of axes of the result that `row` counts through.
        row: C++ of the number of the row.
        channel: whether the bias has a number for each channel, axis 1.
        scattered: whether the places are in an array `places`, not side by side.
    """
    strides = dict(after.strides)
    if bias is not None:
        own = repeated(bias.spec, after.shape, channel=channel)
        if own is None or bias.spec.dtype != "float32":
            raise NotCoveredError(f"{region.name}: a bias of {bias.spec.shape}")
        strides["a2"] = own
    space = space_of(after.shape, strides, split=split)
    if space is None or any(stride not in (0, 1) for stride in space.inner_stride.values()):
        raise NotCoveredError(f"{region.name}: rows of its epilogue in pieces")
    (result,) = region.outputs
    lines = [f"const long row = {row};"]
    lines += [pointer(name, "row", "", space.row_offset(name)) for name in space.inner_stride]
    total = "sum"
    if bias is not None:
        read = load("a2_row", "j", space.inner_stride["a2"])
        total = f"sum + {read}" if not scattered else "sum + every(*a2_row)"
    lines.append(f"const vec {variable(result.value)} = {total};")
    return [
        *lines,
        *after.loads(space, scattered=scattered),
        *after.steps,
        *after.saves(space, results_of(graph), scattered=scattered),
    ]


def fused(
    graph: Graph,
    region: Region,
    after: Chain,
    *,
    reads: Mapping[str, str],
    body: Sequence[str],
    needs: tuple[str, ...],
    before: Sequence[str] = (),
    prologue: str | None = None,
) -> Function:
    """The function of a region and of what is behind it.

    Args:
        graph: its graph.
        region: the region.
        after: what is behind it.
        reads: parameter -> value, without those of `after`.
        body: the statements of the function.
        needs: template files.
        before: lines above the function.
        prologue: the region before it that the function computes, too.
    """
    regions = tuple(one for one in (prologue, region.name, after.region) if one)
    return function(
        f"{region.name}_kernel",
        note=", ".join(graph.region[one].form for one in regions),
        reads={**reads, **{name: value for name, (value, _) in after.reads.items()}},
        writes={name: value for name, (value, _) in after.writes.items()},
        body=body,
        before=before,
        regions=regions,
        needs=needs,
    )
