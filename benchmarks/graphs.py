"""How many problems can be read as a graph, and what their regions are.

    python -m benchmarks.graphs --kernelbench DIR --out FILE [--level 1] [--device cuda]

Traces every built-in problem and every problem of levels 1 to 3, at the sizes of a GPU, in this process. With --device
the regions also run there on the problem's inputs: their answer is compared with the reference's, and their times are
summed. Operations are compared with what torch counts. FILE gets one JSON object a problem; those in it already are
left out. At the end comes the table of docs/graph.md, and what was not traced, has no family, or differs.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.references import read
from kbevolve.configs.catalog import builtin_names, find_problem, kernelbench_names
from kbevolve.configs.errors import KBEvolveError
from kbevolve.configs.reference import names_of
from kbevolve.evaluators.analysis.roofline import roofline_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.graph.__main__ import reason
from kbevolve.evaluators.graph.measure import measured
from kbevolve.evaluators.graph.records import Family, Graph, UntraceableError
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.tracer import trace_source


def read_graph(name: str, checkout: Path, device_name: str | None) -> dict[str, Any]:
    """One line of the file."""
    problem = find_problem(name, kernelbench=checkout)
    source = problem.source_for("cpu" if device_name == "cpu" else "cuda")
    started = time.monotonic()
    try:
        graph = cut(trace_source(source, torch.float32))
    except Exception as error:
        return {"problem": name, "reason": str(error) if isinstance(error, UntraceableError) else reason(error)}
    line: dict[str, Any] = {"problem": name, "trace_seconds": round(time.monotonic() - started, 2), **counts(graph)}
    line |= {"torch_flops": torch_count(source, graph)}
    if device_name:
        device = find_device(device_name)
        try:
            found = measured(graph, problem, device, "fp32", roofline_of(device))
            line |= {"difference": found.difference, "eager_ms": found.eager_ms}
            line |= {"regions_ms": found.graph.total("eager_ms"), "roofline_ms": found.graph.total("roofline_ms")}
        except (KBEvolveError, RuntimeError) as error:
            line |= {"not_run": " ".join(str(error).split())[:300]}
    return line


def torch_count(source: str, graph: Graph) -> int | None:
    """The operations that torch counts; None where the model needs data, or every step of a recurrent layer."""
    if graph.nodes_by_family()[Family.RECURRENCE]:
        return None
    namespace = names_of(source)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            model, inputs = namespace["Model"](*namespace["get_init_inputs"]()).eval(), namespace["get_inputs"]()
            with FlopCounterMode(display=False) as counter:
                model(*inputs)
    except DataDependentOutputException:
        return None
    return counter.get_total_flops()


def counts(graph: Graph) -> dict[str, Any]:
    """Numbers of a graph, and the forms that are in no family."""
    families = {family.value: count for family, count in graph.nodes_by_family().items() if count}
    inside = {name for region in graph.regions for name in region.nodes}
    views = sum(node.view and node.name not in inside for node in graph.trace.nodes)
    others = [region.form for region in graph.regions if region.family is Family.OTHER]
    return {
        "regions": len(graph.regions),
        "nodes": families,
        "views": views,
        "others": others,
        "flops": graph.total("flops"),
    }


def main() -> None:
    """Read the graphs, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout of KernelBench")
    parser.add_argument("--out", type=Path, required=True, help="file of results, one JSON object a line")
    parser.add_argument(
        "--level", action="append", help="a level of KernelBench; the built-in problems and 1 to 3 without it"
    )
    parser.add_argument("--device", help="also run the regions there")
    options = parser.parse_args()
    wanted = [name for name in kernelbench_names(options.kernelbench) if name[12:13] in (options.level or "123")]
    wanted += [] if options.level else builtin_names()
    known = {str(line["problem"]) for line in read(options.out)}
    for name in wanted:
        if name not in known:
            with options.out.open("a") as file:
                file.write(json.dumps(read_graph(name, options.kernelbench, options.device)) + "\n")
    lines = [line for line in read(options.out) if line["problem"] in wanted]
    columns = ("level", "problems", "traced", "regions", "operators in named regions", "in other", "views")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for level in ("1", "2", "3", ""):
        of_level: list[Any] = [
            line for line in lines if str(line["problem"]).startswith(f"kernelbench:{level}/" if level else "L")
        ]
        traced = [line for line in of_level if "nodes" in line]
        nodes: Counter[str] = Counter()
        for line in traced:
            nodes.update(line["nodes"])
        named = nodes.total() - nodes[Family.OTHER]
        cells = (level or "built in", len(of_level), len(traced), sum(line["regions"] for line in traced), named)
        cells += (nodes[Family.OTHER], sum(line["views"] for line in traced))
        print(f"| {' | '.join(map(str, cells))} |")
    for line in lines:
        for key in ("reason", "not_run"):
            if key in line:
                print(f"- {line['problem']}: {line[key]}")
        if line.get("torch_flops", line.get("flops")) not in (None, line.get("flops")):
            print(f"- {line['problem']}: {line['flops']} operations, torch counts {line['torch_flops']}")
        if line.get("others") or float(str(line.get("difference", 0))) > 1e-5:
            print(f"- {line['problem']}: other {line.get('others')}, difference {line.get('difference')}")


if __name__ == "__main__":
    main()
