"""A graph's regions as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbevolve.archive.formatting import counted, operation_words, size_words, time_words
from kbevolve.archive.record_json import to_json
from kbevolve.evaluators.graph.records import Graph, Operand, Region
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.tables import Column, print_fields, print_table

if TYPE_CHECKING:
    from kbevolve.evaluators.graph.measure import MeasuredGraph

#: Constants that a table shows; the others are in the JSON.
_SHOWN = ("kernel", "kernel_size", "stride", "padding", "dilation", "groups", "dim", "eps", "scale")

_COLUMNS: tuple[Column[Region], ...] = (
    Column("region", lambda one: one.name),
    Column("family", lambda one: one.family.value),
    Column("computes", lambda one: _computes(one), flexible=True),
    Column("reads", lambda one: ", ".join(_operand_words(operand) for operand in one.operands), flexible=True),
    Column("makes", lambda one: ", ".join(_shape_words(output) for output in one.outputs)),
    Column("moves", lambda one: size_words(one.bytes_read + one.bytes_written), right=True),
    Column("products", lambda one: operation_words(one.flops) if one.flops else "", right=True),
    Column("roofline", lambda one: time_words(one.roofline_ms), right=True),
    Column("eager", lambda one: time_words(one.eager_ms), right=True),
)


def print_graph(console: Console, graph: Graph, times: MeasuredGraph | None) -> None:
    """Print the regions in the order in which they run, and what they sum up to."""
    print_table(console, _COLUMNS, graph.regions)
    console.print()
    views = sum(node.view for node in graph.trace.nodes)
    summary = {
        "regions": f"{len(graph.regions)}, of {counted(len(graph.trace.nodes), 'operator')}, {views} of them views",
        "products": operation_words(round(graph.total("flops"))),
    }
    if times:
        summary["eager"] = f"{time_words(times.eager_ms)}, regions one by one {time_words(graph.total('eager_ms'))}"
        summary["checked"] = f"the regions give the reference's answer within {times.difference:.1g}"
    else:
        summary["times"] = "none: this machine has no CUDA device; --device cpu has those of this CPU, at its sizes"
    if graph.trace.written:
        summary["replaces"] = ", ".join(graph.trace.written)
    print_fields(console, summary)


def graph_tree(graph: Graph, times: MeasuredGraph | None) -> dict[str, Any]:
    """Regions, operators and tensors; times are null where they were not measured."""
    trace = graph.trace
    tree: dict[str, Any] = to_json(
        {
            "regions": graph.regions,
            "inputs": trace.inputs,
            "outputs": trace.outputs,
            "written": trace.written,
            "takes": trace.takes,
            "returns": trace.returns,
            "literals": trace.literals,
            "nodes": trace.nodes,
            "tensors": trace.tensors,
            "eager_ms": times.eager_ms if times else None,
            "difference": times.difference if times else None,
        }
    )
    return tree


def _computes(region: Region) -> str:
    """``linear, batch 1, m 1024, n 8192, k 8192`` or ``conv2d, kernel 3×3, stride 2×2``; or the steps in order."""
    words = [region.form]
    if region.contraction:
        sizes = zip(("batch", "m", "n", "k"), region.contraction.sizes, strict=True)
        words += [f"{name} {size}" for name, size in sizes]
    words += [f"{name} {_constant(region.constants[name])}" for name in _SHOWN if name in region.constants]
    return ", ".join(words)


def _constant(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "×".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _operand_words(operand: Operand) -> str:
    """``self.fc.weight 768×512 (lower triangular)``."""
    structure = f" ({', '.join(operand.structure)})" if operand.structure else ""
    return f"{operand.source} {_shape_words(operand)}{structure}"


def _shape_words(operand: Operand) -> str:
    shape = "×".join(map(str, operand.spec.shape)) or "scalar"
    return shape if operand.spec.dtype == "float32" else f"{shape} {operand.spec.dtype}"
