"""Functions of norms, reductions and losses: loops around a program of a row.

The axes of the elements are those before the reduced ones, the reduced ones, and those behind. Without axes behind, a
row lies side by side and is reduced across its lanes. Otherwise its elements lie a stride apart, and neighbouring rows
are reduced side by side.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kbevolve.evaluators.graph.records import Graph, Node, Region
from kbevolve.evolve.proposers.seeds.cpp.chains import Chain, behind, chain_of, load, pointer, results_of, variable
from kbevolve.evolve.proposers.seeds.cpp.endings import fused
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError, nested
from kbevolve.evolve.proposers.seeds.cpp.programs import Derived, Moments, Reduced, RowProgram, program_of
from kbevolve.evolve.proposers.seeds.cpp.spaces import Space, offset, repeated, space_of

_GLOBAL_POOLS = ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
#: Parameter -> strides.
Strides = Mapping[str, tuple[int, ...]]


def rows(graph: Graph, region: Region, done: frozenset[str], *, prologue: Region | None = None) -> Function:
    """The function of a norm, a reduction or a loss, with its epilogue; raises NotCoveredError.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before.
        prologue: a pointwise region that computes the elements of a reduction's rows, in the same function.
    """
    if len(region.outputs) != 1:
        raise NotCoveredError(f"{region.name}: several results")
    axes = _axes(graph, region)
    program = program_of(region, math.prod(axes.reduced))
    before = _elements(graph, region, program, prologue)
    if prologue is not None and (program.maps or program.passes > 1):
        raise NotCoveredError(f"{region.name}: its elements would be computed more than once")
    after = behind(graph, region, done, first=len(before.reads))
    if program.maps:
        after = _without(after, before)
    weights = _weights(region, first=len(before.reads) + len(after.reads)) if program.maps else {}
    loops = _Loops(region, program, axes, before, after, weights, results_of(graph))
    reads = {name: value for name, (value, _) in (*before.reads.items(), *weights.items())}
    body = loops.beside() if axes.behind else loops.across()
    return fused(graph, region, after, reads=reads, body=body, needs=("rows",), prologue=before.region)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Sizes of the axes of the elements. A group of channels is an axis of its own."""

    before: tuple[int, ...]
    reduced: tuple[int, ...]
    behind: tuple[int, ...]
    #: Number of axes that axis 1 became: 2 for group norm.
    split_channels: int = 0

    def cut(self, strides: Sequence[int]) -> tuple[int, ...]:
        """The strides of a tensor of the operand's shape along these axes."""
        if not self.split_channels:
            return tuple(strides)
        return (strides[0], strides[1] * self.reduced[0], *strides[1:])


class _Loops:
    """Writes the loops around a program."""

    def __init__(
        self,
        region: Region,
        program: RowProgram,
        axes: _Axes,
        before: Chain,
        after: Chain,
        weights: Mapping[str, tuple[str, tuple[int, ...]]],
        results: Sequence[str],
    ) -> None:
        self._region, self._program, self._axes = region, program, axes
        self._before, self._after, self._results = before, after, results
        self._inputs: Strides = {name: axes.cut(own) for name, (_, own) in before.reads.items()}
        mapped = {**after.strides, **{name: own for name, (_, own) in weights.items()}}
        #: Parameters at an element of the result, along all axes, or along those that are not reduced.
        self._mapped: Strides = {name: axes.cut(own) for name, own in mapped.items()}
        if not program.maps:
            self._mapped = {name: self._of_result(own) for name, own in mapped.items()}
        role_of = {operand.value: operand.role for operand in region.operands}
        self._weights = {role_of[value]: name for name, (value, _) in weights.items()}

    def across(self) -> list[str]:
        """Rows whose elements are neighbours."""
        axes, first = self._axes, len(self._axes.before)
        space = self._fitting((*axes.before, *axes.reduced), self._inputs, first)
        outer = self._fitting(axes.before, {name: own[:first] for name, own in self._mapped.items()}, first)
        lines = [pointer(name, "row", "", space.row_offset(name)) for name in self._inputs]
        lines += [pointer(name, "row", "", outer.row_offset(name)) for name in self._mapped]
        element = self._element(space, "row")
        for one in self._program.numbers:
            if isinstance(one, Derived):
                lines.append(f"const vec {one.name} = {one.text};")
            elif isinstance(one, Moments):
                head = f"const Moments both = moments({space.inner}, team, [=](long j, int lanes) INLINE"
                lines += nested(head, [*element, "return x;"])
                lines.append("const vec mean = every(both.mean), variance = every(both.variance);")
            else:
                head = (
                    f"const vec {one.name} = every(across<{one.how}>({space.inner}, team, [=](long j, int lanes) INLINE"
                )
                last = [*self._kept("store"), f"return {one.of};"] if self._is_kept(one) else [f"return {one.of};"]
                lines += [*nested(head, [*element, *last])[:-1], "}));"]
        if self._program.maps:
            both = {**self._inputs, **self._mapped}
            inside = space_of(axes.reduced, {name: own[first:] for name, own in both.items()})
            assert inside is not None, "it is only None for a given split"
            lines += self._map(inside)
        else:
            lines += ["const int lanes = 1;", *self._ending(outer, "row", "0")]
        return nested(f"by_rows({space.rows}, {space.inner}, threads, [=](long row, int team) INLINE", lines)

    def _map(self, inside: Space) -> list[str]:
        """The elements of a row of the result. It has parts where each channel has a weight of its own."""
        at = "row" if inside.rows == 1 else "part"
        each = [*self._element(inside, at), *self._kept("load"), *self._ending(inside, at)]
        sweep = nested(f"along({inside.inner}, team, [=](long j, int lanes) INLINE", each)
        if inside.rows == 1:
            return sweep
        parts = [pointer(name, "part", "_row", inside.row_offset(name, "part")) for name in inside.inner_stride]
        return [f"for (long part = 0; part < {inside.rows}; part++) {{", *(f"  {one}" for one in (*parts, *sweep)), "}"]

    def beside(self) -> list[str]:
        """Rows whose elements lie a stride apart."""
        axes, first = self._axes, len(self._axes.before)
        last, depth = first + len(axes.reduced), math.prod(axes.reduced)
        space = self._fitting((*axes.before, *axes.behind), _but(self._inputs, first, last), first)
        lines = [pointer(name, "row", "", space.row_offset(name)) for name in self._inputs]
        element = self._deep(self._inputs, first, last) + self._element(space, "at")
        known: list[str] = []
        numbers = [one.one_by_one if isinstance(one, Moments) else (one,) for one in self._program.numbers]
        for one in itertools.chain.from_iterable(numbers):
            if isinstance(one, Derived):
                known.append(f"const vec {one.name} = {one.text};")
                continue
            head = f"down<{one.how}>({depth}, begin, end, all_{one.name}, [&](long k, long j, int lanes) INLINE"
            lines += [f"alignas(64) float all_{one.name}[COLUMNS];"]
            kept = self._kept() if self._is_kept(one) else []
            lines += nested(head, [*element, *known, *kept, f"return {one.of};"])
            known.append(f"const vec {one.name} = load<1>(all_{one.name} + j - begin, LANES);")
        maps = self._program.maps
        outer = self._fitting(
            (*axes.before, *axes.behind), _but(self._mapped, first, last) if maps else self._mapped, first
        )
        lines += [pointer(name, "row", "", outer.row_offset(name)) for name in self._mapped]
        if maps:
            each = [*element, *self._deep(self._mapped, first, last), *known, *self._kept(), *self._ending(outer, "at")]
            lines.append(f"for (long k = 0; k < {depth}; k++)")
        else:
            each = [*known, *self._ending(outer, "row")]
        lines += nested("sweep(begin, end, [&](long j, int lanes) INLINE", each)
        return nested(
            f"by_columns({space.rows}, {space.inner}, threads, [=](long row, long begin, long end) INLINE", lines
        )

    def _is_kept(self, one: Reduced) -> bool:
        return self._program.kept is not None and one.of == self._program.kept[0]

    def _kept(self, how: str = "") -> list[str]:
        """Statements that compute the element that is needed twice, and "store" it in the result or "load" it there."""
        if self._program.kept is None:
            return []
        name, text = self._program.kept
        if how == "load":
            return [f"const vec {name} = KEEP ? load<1>(y0_row + j, lanes) : {text};"]
        return [f"const vec {name} = {text};", *(["if (KEEP) store(y0_row + j, " + name + ", lanes);"] if how else [])]

    def _deep(self, strides: Strides, first: int, last: int) -> list[str]:
        """Statements that find element k of the rows that begin at `_row`."""
        steps = {name: offset(self._axes.reduced, own[first:last], "k") for name, own in strides.items()}
        return [pointer(name, "at", "_row", step) for name, step in steps.items()]

    def _fitting(self, shape: Sequence[int], strides: Strides, split: int) -> Space:
        """Rows of neighbours, or of one repeated element."""
        space = space_of(shape, strides, split=split)
        if space is None or any(stride not in (0, 1) for stride in space.inner_stride.values()):
            raise NotCoveredError(f"{self._region.name}: rows in pieces")
        return space

    def _of_result(self, own: tuple[int, ...]) -> tuple[int, ...]:
        """The strides of a tensor of the result's shape along the axes that are not reduced."""
        sizes, shape = (*self._axes.before, *self._axes.behind), self._region.outputs[0].spec.shape
        if [size for size in sizes if size > 1] != [size for size in shape if size > 1]:
            raise NotCoveredError(f"{self._region.name}: a result of {shape}")
        strides = [stride for size, stride in zip(shape, own, strict=True) if size > 1]
        return tuple(strides.pop(0) if size > 1 else 0 for size in sizes)

    def _element(self, space: Space, at: str) -> list[str]:
        """Statements that define x."""
        names = [variable(operand.value) for operand in self._region.operands]
        text = self._program.element.format(input=names[0], target=names[min(1, len(names) - 1)])
        return [*self._before.loads(space, at=at), *self._before.steps, f"const vec x = {text};"]

    def _ending(self, space: Space, at: str, j: str = "j") -> list[str]:
        """Statements that compute an element of the result, and what is behind it, and write it."""
        result = self._program.result
        lines = []
        for role, sign in (("weight", "*"), ("bias", "+")):
            if role in self._weights:
                name = self._weights[role]
                lines.append(f"const vec {role} = {load(f'{name}_{at}', j, space.inner_stride[name])};")
                result = f"({result}) {sign} {role}"
        lines.append(f"const vec {variable(self._region.outputs[0].value)} = {result};")
        return [
            *lines,
            *self._after.loads(space, at=at, j=j),
            *self._after.steps,
            *self._after.saves(space, self._results, at=at, j=j),
        ]


def _without(after: Chain, before: Chain) -> Chain:
    """An epilogue without what has been read at the same place."""
    shared = {value: strides for value, strides in before.reads.values()}
    for value, strides in after.reads.values():
        if shared.get(value, strides) != strides:
            raise NotCoveredError(f"{value} is read at two places")
    return replace(after, reads={name: one for name, one in after.reads.items() if one[0] not in shared})


def _but(strides: Strides, first: int, last: int) -> Strides:
    """Without the axes first .. last."""
    return {name: own[:first] + own[last:] for name, own in strides.items()}


def _axes(graph: Graph, region: Region) -> _Axes:
    """The axes of a region's elements; raises NotCoveredError where the reduced ones are not neighbours."""
    shape, rank = region.operands[0].spec.shape, len(region.operands[0].spec.shape)
    constants = region.constants
    if region.form == "group_norm":
        groups = constants["num_groups"]
        return _Axes(before=(shape[0], groups), reduced=(shape[1] // groups, *shape[2:]), behind=(), split_channels=2)
    if region.form == "instance_norm":
        if not constants.get("use_input_stats", True):
            raise NotCoveredError(f"{region.name}: statistics of its state")
        axes = list(range(2, rank))
    elif region.form == "layer_norm" and "normalized_shape" in constants:
        axes = list(range(rank - len(constants["normalized_shape"]), rank))
    elif region.form in _GLOBAL_POOLS:
        kept = rank - len(constants["output_size"])
        if any(size != 1 for size in constants["output_size"]):
            raise NotCoveredError(f"{region.name}: a pool of {constants['output_size']}")
        axes = list(range(kept, rank))
    elif "loss" in region.form:
        axes = list(range(rank))
    else:
        dim = constants.get("dim", _dim_of(graph, region))
        dims = dim if isinstance(dim, tuple) else (dim,)
        axes = sorted({one % rank for one in dims}) if rank and dim not in (None, ()) else list(range(rank))
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise NotCoveredError(f"{region.name}: reduced axes {axes} of {shape}")
    return _Axes(before=shape[: axes[0]], reduced=shape[axes[0] : axes[-1] + 1], behind=shape[axes[-1] + 1 :])


def _dim_of(graph: Graph, region: Region) -> object:
    """The axes in the arguments of the region's first node that has some."""
    nodes: list[Node] = [node for node in graph.trace.nodes if node.name in region.nodes]
    return next((node.arguments["dim"] for node in nodes if "dim" in node.arguments), None)


def _elements(graph: Graph, region: Region, program: RowProgram, prologue: Region | None) -> Chain:
    """The elements of the rows: operands of a region, or what a prologue computes."""
    operands = [one for one in region.operands if one.role not in ("weight", "bias") or not program.maps]
    shape = operands[0].spec.shape
    if prologue is not None:
        if any(operand.views for operand in region.operands):
            raise NotCoveredError(f"{region.name}: a view before it")
        chain = chain_of(graph, prologue)
        if chain.shape != shape or len(operands) != 1:
            raise NotCoveredError(f"{region.name}: elements of another shape")
        return Chain(shape=shape, reads=chain.reads, steps=chain.steps, region=chain.region)
    reads: dict[str, tuple[str, tuple[int, ...]]] = {}
    for operand in operands:
        strides = repeated(operand.spec, shape)
        if operand.spec.dtype != "float32" or strides is None or not operand.spec.elements:
            raise NotCoveredError(f"{region.name}: {operand.value} is {operand.spec.dtype} of {operand.spec.shape}")
        reads[f"a{len(reads)}"] = (operand.value, strides)
    return Chain(shape=shape, reads=reads)


def _weights(region: Region, *, first: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Parameters for the weight and the bias of a norm: value and strides along the operand's shape."""
    shape = region.operands[0].spec.shape
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for operand in region.operands[1:]:
        channel = region.form in ("group_norm", "instance_norm")
        strides = repeated(operand.spec, shape, channel=channel)
        if operand.role not in ("weight", "bias") or operand.spec.dtype != "float32" or strides is None:
            raise NotCoveredError(f"{region.name}: reads {operand.role}")
        found[f"a{first + len(found)}"] = (operand.value, strides)
    return found
