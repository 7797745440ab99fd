"""A kernel file for a whole graph: C++ where a template computes a region, torch's operators for the rest.

Regions are taken in the order in which they run. A product or a convolution has a switch: the template's function, with
the pointwise region behind it, or the library's.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kbevolve.configs.reference import as_model_new, forward_arguments, with_forward, without_head
from kbevolve.configs.templates import template
from kbevolve.evaluators.graph.records import Family, Graph, Region
from kbevolve.evolve.proposers.seeds.cpp.convolutions import convolution
from kbevolve.evolve.proposers.seeds.cpp.functions import Function, NotCoveredError
from kbevolve.evolve.proposers.seeds.cpp.library import Names
from kbevolve.evolve.proposers.seeds.cpp.pointwise import pointwise
from kbevolve.evolve.proposers.seeds.cpp.pooling import pool
from kbevolve.evolve.proposers.seeds.cpp.products import product
from kbevolve.evolve.proposers.seeds.cpp.rows import rows
from kbevolve.evolve.proposers.seeds.cpp.scans import scan
from kbevolve.evolve.proposers.tuning.tunables import with_values

#: Switches between template and library; later calls share the last, so that the search stays small.
_MOST_SWITCHES = 6
#: The C++ files in the order of a file; the first two are in every file.
_HEADERS = ("vectors", "functions", "rows", "scans", "product", "convolution", "direct", "pooling")
#: Tunables that only some functions look at -> what these functions call.
_USES = {"GRAIN": ("spread(", "by_rows(", "pools<", "direct<", "scan<"), "KEEP": ("KEEP",), "COLUMNS": ("by_columns(",)}
#: Functions of one file: a second or two of a compiler's time each.
_MOST_FUNCTIONS = 60

_Writer = Callable[[Graph, Region, frozenset[str]], Function]
_WRITERS: dict[Family, _Writer] = {
    Family.POINTWISE: lambda graph, region, done: pointwise(graph, region),
    Family.NORM: rows,
    Family.REDUCTION: rows,
    Family.LOSS: rows,
    Family.POOLING: pool,
    Family.SCAN: scan,
    Family.PRODUCT: product,
    Family.CONVOLUTION: convolution,
}
_SWITCHED: frozenset[Family] = frozenset({Family.PRODUCT, Family.CONVOLUTION})

#: Rows of a register tile, the best one for large products first.
_TILE_ROWS = (12, 8, 6, 4)
_NOTE = '"""What the reference computes, region by region: C++ from templates, torch for the rest."""'
_IMPORTS = """\
import ctypes
import hashlib
import os
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Regions that are computed together."""

    #: None where torch computes them.
    function: Function | None
    regions: tuple[str, ...]
    #: What computes the same without the template, where that is a choice of the search.
    otherwise: tuple["Segment", ...] = ()


def assembled(graph: Graph, reference: str) -> str:
    """The file.

    Args:
        graph: of the problem at the sizes of a CPU, in fp32.
        reference: the text of the problem at these sizes.

    Raises:
        NotCoveredError: no region has a template, or the graph does more than return tensors.
    """
    if graph.trace.written:
        raise NotCoveredError("the model changes its state or its inputs")
    try:
        names = Names(graph, forward_arguments(reference))
    except KeyError:
        raise NotCoveredError("forward() takes tensors that have no name there") from None
    segments = _planned(graph)
    functions: dict[str, str] = {}
    for segment in segments:
        for one in (segment, *segment.otherwise):
            if one.function:
                functions.setdefault(_anonymous(one.function), one.function.name)
    if not functions:
        raise NotCoveredError("no region has a template")
    if len(functions) > _MOST_FUNCTIONS:
        raise NotCoveredError(f"{len(functions)} functions would take too long to compile")
    writer = _Forward(graph, names, functions)
    body = writer.body(segments)
    made = [one.function for segment in segments for one in (segment, *segment.otherwise) if one.function]
    needed = {name for function in made for name in function.needs}
    texts = [function.text for function in made if functions[_anonymous(function)] == function.name]
    future, model_new = without_head(as_model_new(reference))
    model_new = with_forward(model_new, "\n".join(body), decorator="torch.no_grad()")
    text = "\n".join([_NOTE, "", future + _IMPORTS, "", *_source(needed, texts, writer.switches), model_new])
    return with_values(text, {"MR": str(_tile_rows(graph))})


def _planned(graph: Graph) -> list[Segment]:
    """What computes each region."""
    segments: list[Segment] = []
    done: set[str] = set()
    for region in graph.regions:
        if region.name in done:
            continue
        segment = _segment(graph, region, frozenset(done))
        segments.append(segment)
        done.update(segment.regions)
    return segments


def _segment(graph: Graph, region: Region, done: frozenset[str], *, joins: bool = True) -> Segment:
    """What computes a region; with `joins`, a pointwise region may be computed with the reduction that reads it."""
    readers = {name for names in region.consumers.values() for name in names} if joins else set[str]()
    if region.family is Family.POINTWISE and len(readers) == 1 and (name := readers.pop()) in graph.region:
        reader = graph.region[name]
        if reader.family is Family.REDUCTION and region.name in reader.prologue:
            try:
                function = rows(graph, reader, done | {region.name}, prologue=region)
                return Segment(function=function, regions=function.regions)
            except NotCoveredError:
                pass
    library = Segment(function=None, regions=(region.name,))
    writer = _WRITERS[Family.POINTWISE] if region.form == "batch_norm" else _WRITERS.get(region.family)
    if writer is None:
        return library
    try:
        function = writer(graph, region, done)
    except NotCoveredError:
        return library
    if region.family not in _SWITCHED:
        return Segment(function=function, regions=function.regions)
    rest = [
        _segment(graph, graph.region[name], done | {region.name}, joins=False)
        for name in function.regions
        if name != region.name
    ]
    return Segment(function=function, regions=function.regions, otherwise=(library, *rest))


def _tile_rows(graph: Graph) -> int:
    """Rows of a register tile for the largest product or convolution: few empty rows, but few tiles, too.

    Each tile loads its columns, which takes about as long as two of its rows.
    """
    large = max((one for one in graph.regions if one.family in _SWITCHED), key=lambda one: one.flops, default=None)
    if large is None:
        return _TILE_ROWS[0]
    shape = large.outputs[0].spec.shape
    made = large.contraction.sizes[1] if large.contraction else shape[1] // large.constants["groups"]
    return min(_TILE_ROWS, key=lambda size: -(-made // size) * (size + 2))


def _anonymous(function: Function) -> str:
    """A function without names: layers that repeat share one."""
    text = function.text.split("\n", 1)[1].replace(function.name, "…")
    numbers: dict[str, str] = {}
    return re.sub(r"\bv_\w+", lambda found: numbers.setdefault(found[0], f"v{len(numbers)}"), text)


class _Forward:
    """Writes the body of `forward`."""

    def __init__(self, graph: Graph, names: Names, functions: dict[str, str]) -> None:
        self._graph, self._functions, self._names = graph, functions, names
        self._nodes = {node.name: node for node in graph.trace.nodes}
        #: Their values as declared: a library's convolutions are hard to beat on a CPU.
        self.switches: list[int] = []

    def body(self, segments: Sequence[Segment]) -> list[str]:
        """Its lines."""
        trace = self._graph.trace
        lines, known = self._names.literals(), set[str]()
        for segment in segments:
            reads = [operand.value for name in segment.regions for operand in self._graph.region[name].operands]
            lines += self._names.views([value for value in reads if self._is_ready(value, segment)], known)
            if not segment.otherwise:
                lines += self._lines(segment, known)
                continue
            switch = f"PRODUCT_{min(len(self.switches), _MOST_SWITCHES - 1)}"
            self.switches.append(int(self._graph.region[segment.regions[0]].family is Family.PRODUCT))
            lines += [f"if {switch}:", *(f"    {line}" for line in self._lines(segment, known)), "else:"]
            lines += [f"    {line}" for one in segment.otherwise for line in self._lines(one, known)]
        lines += self._names.views(trace.outputs, known)
        return [*lines, f"return {self._returned(trace.returns)}"]

    def _is_ready(self, value: str, segment: Segment) -> bool:
        """Whether a view's own tensor is there before a segment."""
        made = {node for name in segment.regions for node in self._graph.region[name].nodes}
        producer = self._graph.trace.producer.get(self._graph.trace.base(value)[0])
        return producer is None or producer.name not in made

    def _lines(self, segment: Segment, known: set[str]) -> list[str]:
        trace = self._graph.trace
        if segment.function is None:
            lines: list[str] = []
            for name in segment.regions:
                for one in self._graph.region[name].nodes:
                    node = self._nodes[one]
                    if node.view:
                        lines += self._names.views(node.outputs, known)
                        continue
                    lines += self._names.views(node.reads, known)
                    lines.append(self._names.call(node))
            return lines
        function = segment.function
        reads = ", ".join(
            f"({self._names[value]}, {trace.tensors[value].shape}, {trace.tensors[value].stride})"
            for value in function.reads
        )
        makes = ", ".join(f"({trace.tensors[value].shape}, {trace.tensors[value].stride})" for value in function.writes)
        targets = ", ".join(self._names[value] for value in function.writes)
        return [f'{targets} = launch("{self._functions[_anonymous(function)]}", [{reads}], [{makes}])']

    def _returned(self, tree: Any) -> str:
        match tree:
            case {"tensor": int(index)}:
                return self._names[self._graph.trace.outputs[index]]
            case {"tuple": [*items]}:
                return f"({', '.join(map(self._returned, items))},)"
            case {"list": [*items]}:
                return f"[{', '.join(map(self._returned, items))}]"
            case None | bool() | int() | float() | str():
                return repr(tree)
        raise NotCoveredError(f"the model returns {tree}")


def _source(needed: set[str], texts: Sequence[str], switches: Sequence[int]) -> list[str]:
    """The C++ and what calls it."""
    headers = [template(f"cpp/{name}.h") for name in _HEADERS if name in needed | set(_HEADERS[:2])]
    names = {f"PRODUCT_{number}": value for number, value in enumerate(switches[:_MOST_SWITCHES])}
    code = "\n\n".join(texts)
    lines = ['SOURCE = r"""', *headers, code, '"""', ""]
    if names:
        lines += ["# 1: the template's function; 0: the library's."]
        lines += [f"{name} = {value}  # tune: {value}, {1 - value}" for name, value in names.items()]
        lines.append(f"# tune PACK, MR, NR, BLOCK_M, BLOCK_N, BLOCK_K if: {' or '.join(names)}")
    lines += [f"# tune {name} if: 0" for name, uses in _USES.items() if not any(use in code for use in uses)]
    return [*lines, "", template("cpp/launch.py"), ""]
