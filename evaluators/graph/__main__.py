"""The program of `process.traced`: traces a problem's file.

``python -m kbevolve.evaluators.graph REFERENCE TRACE DTYPE``

It runs the file, builds its `Model` without data and writes the trace as JSON. On failure it ends with status 1; the
last line of stderr is the reason.
"""

import json
import resource
import sys
from pathlib import Path

from kbevolve.evaluators.graph.process import MEMORY_BYTES
from kbevolve.evaluators.graph.records import UntraceableError
from kbevolve.evaluators.graph.trace_json import to_tree

#: Types of torch's errors -> what a person needs to know about them.
_REASONS = {
    "GuardOnDataDependentSymNode": "its control flow depends on data",
    "DataDependentOutputException": "it makes a number from data",
    "DynamicOutputShapeException": "the shape of a tensor depends on data",
    "MemoryError": f"tracing takes more than {MEMORY_BYTES >> 30} GB",
    "RecursionError": "it calls itself too deeply",
}


def main(reference: Path, out: Path, dtype: str) -> None:
    """Trace the file."""
    import torch

    from kbevolve.evaluators.graph.tracer import trace_source

    found = trace_source(reference.read_text(encoding="utf-8"), getattr(torch, dtype))
    out.write_text(json.dumps(to_tree(found)), encoding="utf-8")


def reason(error: BaseException) -> str:
    """One line: torch's messages go on with pages of advice."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    for name, words in _REASONS.items():
        if name in kinds:
            return words
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    shown = first if len(first) <= 200 else first[:200] + " …"
    return f"{type(error).__name__}: {shown}"


if __name__ == "__main__":
    # Data, not addresses: torch maps libraries of several GB.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except UntraceableError as error:
        sys.exit(str(error))
    except Exception as error:
        sys.exit(reason(error))
