"""Traces a problem in a process of its own, with limits of time and memory.

The judge runs a problem's file in its own process, too, but only calls it. Tracing takes half a minute for the largest
models, patches torch while it runs, and a file may hang in it that is judged in a second.
"""

import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from kbevolve.configs.problem import Problem
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.graph.records import Graph, Trace, UntraceableError
from kbevolve.evaluators.graph.regions import cut
from kbevolve.evaluators.graph.trace_json import from_tree
from kbevolve.evaluators.program import ProgramError, run_program

#: Seconds by the clock. On two busy cores ResNet-101 takes 29 (measured).
TRACE_SECONDS = 180.0
#: Bytes of data of the process. Nothing of the model is allocated; torch itself takes under one GB.
MEMORY_BYTES = 8 << 30
#: Version of the traces' content; another number makes cached traces invalid.
_FORMAT = 2
#: One thread: shapes need no more, and each one's stack counts as data. No GPU: a model that asks whether there is one
#: is traced alike everywhere.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def graph_for(
    problem: Problem,
    device_type: str,
    precision: str,
    *,
    seconds: float = TRACE_SECONDS,
    disk_cache: DiskCache | None = None,
) -> Graph:
    """The regions of a problem's reference, without times.

    Args:
        problem: which problem.
        device_type: ``"cpu"`` or ``"cuda"``: the sizes may differ. The trace is made without a device.
        precision: of the task.
        seconds: limit for tracing.
        disk_cache: where traces are kept; the user's own cache if None.

    Raises:
        UntraceableError: the reference has no graph; one line says why.
    """
    return cut(traced(problem, device_type, precision, seconds=seconds, disk_cache=disk_cache or DiskCache()))


def traced(problem: Problem, device_type: str, precision: str, *, seconds: float, disk_cache: DiskCache) -> Trace:
    """As `graph_for`, before the cut."""
    key = f"{problem.id}|{device_type}|{_DTYPES[precision]}|torch {version('torch')}|{_FORMAT}"
    tree = disk_cache.get("trace", key)
    if tree is None:
        with tempfile.TemporaryDirectory(prefix="kbevolve-trace-") as folder:
            reference, out = Path(folder, "reference.py"), Path(folder, "trace.json")
            reference.write_text(problem.source_for(device_type), encoding="utf-8")
            words = [str(reference), str(out), _DTYPES[precision]]
            try:
                run_program(f"{__package__}", words, seconds=seconds, environment=_ENVIRONMENT)
                tree = json.loads(out.read_text(encoding="utf-8"))
            except (ProgramError, OSError, ValueError) as error:
                raise UntraceableError(f"{problem.name} cannot be traced: {error}") from None
        disk_cache.put("trace", key, tree)
    return from_tree(tree)
