"""A pointwise region as C++ at one place of its result: alone, before a region that reads it, or behind one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbevolve.evaluators.graph.records import Graph, Node, Ref, Region, TensorSpec
from kbevolve.evolve.proposers.seeds.cpp.functions import NotCoveredError
from kbevolve.evolve.proposers.seeds.cpp.spaces import Space, repeated
from kbevolve.evolve.proposers.seeds.expressions import CPP, NoExpressionError, expression

#: Arguments whose only axis is the axis of channels.
_OF_CHANNELS = {
    "batch_norm": ("weight", "bias", "running_mean", "running_var"),
    "_native_batch_norm_legit_no_training": ("weight", "bias", "running_mean", "running_var"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The steps of a pointwise region, or none."""

    shape: tuple[int, ...]
    #: Parameter of the function -> the value that it points to, and its strides along `shape`.
    reads: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    #: Parameter -> the value that the function makes there.
    writes: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    #: C++ statements; they read and define variables named by `variable`.
    steps: tuple[str, ...] = ()
    region: str | None = None

    @property
    def strides(self) -> Mapping[str, tuple[int, ...]]:
        """Parameter -> strides."""
        return {name: strides for name, (_, strides) in (*self.reads.items(), *self.writes.items())}

    def loads(self, space: Space, *, at: str = "row", j: str = "j", scattered: bool = False) -> list[str]:
        """Statements that read `lanes` elements of each operand, from place j of a pointer such as `a0_row`.

        Those at the places of an array `places`, where they are scattered.
        """
        texts = []
        for name, (value, _) in self.reads.items():
            stride = space.inner_stride[name]
            text = load(f"{name}_{at}", j, stride)
            if scattered:
                text = f"load_at<{stride}>({name}_{at}, places, lanes)"
            texts.append(f"const vec {variable(value)} = {text};")
        return texts

    def saves(
        self, space: Space, results: Sequence[str], *, at: str = "row", j: str = "j", scattered: bool = False
    ) -> list[str]:
        """Statements that write what was computed; `results` are values that the caller of the model gets.

        Raises:
            NotCoveredError: neighbours of a row of the result are no neighbours in memory.
        """
        if any(space.inner_stride[name] != 1 and space.inner > 1 for name in self.writes):
            raise NotCoveredError("a result whose rows have gaps")
        if scattered:
            return [
                f"save_at({name}_{at}, places, {variable(value)}, lanes);" for name, (value, _) in self.writes.items()
            ]
        return [
            f"save<{'true' if value in results else 'false'}>({name}_{at} + {j}, {variable(value)}, lanes);"
            for name, (value, _) in self.writes.items()
        ]


def variable(value: str) -> str:
    """The C++ variable that has a value's elements."""
    return "v_" + re.sub(r"\W+", "_", value).strip("_")


def pointer(name: str, at: str, start: str, step: str) -> str:
    """A statement that finds a part of a parameter's tensor: ``a0_row = a0 + step``."""
    kind = "float*" if name.startswith("y") else "const float*"
    return f"{kind} {name}_{at} = {name}{start} + {step};"


def load(row: str, j: str, stride: int) -> str:
    """C++ that reads `lanes` elements from place j of a row."""
    place = {0: "", 1: f" + {j}"}.get(stride, f" + ({j}) * {stride}")
    return f"load<{stride}>({row}{place}, lanes)"


def chain_of(graph: Graph, region: Region, *, inside: str | None = None, first: int = 0) -> Chain:
    """A pointwise region.

    Args:
        graph: its graph.
        region: the region.
        inside: a value that another part of the function computes: no parameter, but a variable.
        first: number of the first parameter.

    Raises:
        NotCoveredError: an operator, a dtype, a shape or a view has no C++ here.
    """
    trace = graph.trace
    nodes = {node.name: node for node in trace.nodes}
    shapes = {operand.spec.shape for operand in region.outputs}
    if len(shapes) != 1:
        raise NotCoveredError(f"{region.name}: results of several shapes")
    shape = shapes.pop()
    names: dict[str, str] = {} if inside is None else {inside: variable(inside)}
    masks: set[str] = set()
    reads: dict[str, tuple[str, tuple[int, ...]]] = {}
    steps: list[str] = []
    made = {value for name in region.nodes for value in nodes[name].outputs}
    for name in region.nodes:
        node = nodes[name]
        if node.view:
            raise NotCoveredError(f"{region.name}: a view within")
        for role, argument in node.arguments.items():
            if not isinstance(argument, Ref) or argument.value in names or argument.value in made:
                continue
            spec = trace.tensors[argument.value]
            strides = repeated(spec, shape, channel=role in _OF_CHANNELS.get(node.kind, ()))
            if spec.dtype != "float32" or strides is None:
                raise NotCoveredError(f"{region.name}: {argument.value} is {spec.dtype} of {spec.shape}")
            reads[f"a{first + len(reads)}"] = (argument.value, strides)
            names[argument.value] = variable(argument.value)
        steps.append(_step(node, names, masks))
    writes = {
        f"y{index}": (operand.value, _dense(operand.spec, region.name)) for index, operand in enumerate(region.outputs)
    }
    if any(value in masks for value, _ in writes.values()):
        raise NotCoveredError(f"{region.name}: a result that is no number")
    return Chain(shape=shape, reads=reads, writes=writes, steps=tuple(steps), region=region.name)


def no_chain(value: str, spec: TensorSpec) -> Chain:
    """Nothing behind a region whose result this is."""
    return Chain(shape=spec.shape, writes={"y0": (value, _dense(spec, value))})


def behind(graph: Graph, region: Region, done: frozenset[str], *, first: int) -> Chain:
    """What is computed from a region's only result in the same function: its epilogue, if that is possible, or nothing.

    Args:
        graph: its graph.
        region: the region.
        done: regions that are computed before; an epilogue may read other results only of these.
        first: number of the first parameter of an epilogue.
    """
    (result,) = region.outputs
    for name in region.epilogue:
        epilogue = graph.region[name]
        sources = {operand.source for operand in epilogue.operands} - {region.name}
        mine = [operand for operand in epilogue.operands if operand.source == region.name]
        if any(operand.views for operand in mine) or not (sources & graph.region.keys()) <= done:
            continue
        try:
            chain = chain_of(graph, epilogue, inside=result.value, first=first)
        except NotCoveredError:
            continue
        if chain.shape == result.spec.shape and all(
            strides == result.spec.stride for _, strides in chain.writes.values()
        ):
            return chain
    return no_chain(result.value, result.spec)


def results_of(graph: Graph) -> tuple[str, ...]:
    """The values that the model returns, without views."""
    return tuple(graph.trace.base(value)[0] for value in graph.trace.outputs)


def _step(node: Node, names: dict[str, str], masks: set[str]) -> str:
    value = node.outputs[0]
    try:
        found = expression(node, names, CPP)
    except NoExpressionError as error:
        raise NotCoveredError(f"{node.name}: no C++ for {error}") from None
    wanted = {"where": "condition", "masked_fill": "mask"}.get(node.kind)
    for role, argument in node.arguments.items():
        if isinstance(argument, Ref) and (argument.value in masks) != (role == wanted):
            raise NotCoveredError(f"{node.name}: a mask among its operands")
    names[value] = variable(value)
    if found.mask:
        masks.add(value)
    return f"const {'ivec' if found.mask else 'vec'} {variable(value)} = {found.text};"


def _dense(spec: TensorSpec, name: str) -> tuple[int, ...]:
    """The strides of a tensor that is made here.

    Raises:
        NotCoveredError: it is not fp32, has no elements, or some of its places are not written or written twice.
    """
    expected = 1
    for axis in sorted(range(len(spec.shape)), key=lambda axis: spec.stride[axis]):
        if spec.shape[axis] > 1 and spec.stride[axis] != expected:
            raise NotCoveredError(f"{name}: strides {spec.stride} of {spec.shape}")
        expected *= spec.shape[axis]
    if spec.dtype != "float32" or not expected:
        raise NotCoveredError(f"{name}: {spec.dtype} of {spec.shape}")
    return spec.stride
