"""A pointwise region alone: every element of its result in one pass."""

from kbevolve.evaluators.graph.records import Graph, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import chain_of, pointer, results_of
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, function, nested
from kbevolve.evolve.proposers.seeds.cpp.spaces import by_memory, space_of


def pointwise(graph: Graph, region: Region) -> Function:
    """The function of a pointwise region; raises NotCoveredError."""
    chain = chain_of(graph, region)
    order = by_memory(region.outputs[0].spec)
    shape = [chain.shape[axis] for axis in order]
    space = space_of(shape, {name: [own[axis] for axis in order] for name, own in chain.strides.items()})
    assert space is not None, "it is only None for a given split"
    rows = [pointer(name, "row", "", space.row_offset(name)) for name in chain.strides]
    each = [*chain.loads(space), *chain.steps, *chain.saves(space, results_of(graph))]
    body = nested(
        f"spread({space.rows}, {space.inner}, GRAIN, threads, [=](long row, long begin, long end) INLINE",
        [*rows, *nested("sweep(begin, end, [=](long j, int lanes) INLINE", each)],
    )
    return function(
        f"{region.name}_kernel",
        note=region.form,
        reads={name: value for name, (value, _) in chain.reads.items()},
        writes={name: value for name, (value, _) in chain.writes.items()},
        body=body,
        regions=(region.name,),
    )
