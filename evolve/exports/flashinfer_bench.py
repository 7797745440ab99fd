"""`flashinfer-bench`: a Solution of FlashInfer-Bench, one JSON file with the sources in it.

Source: github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer-trace/solution.mdx and flashinfer_bench/data.
"""

import ast
import json
import sys

from kbevolve import __version__
from kbevolve.archive.formatting import speedup_words
from kbevolve.archive.records import Backend
from kbevolve.configs.syntax import parse
from kbevolve.evolve.exports.interface import interface_of
from kbevolve.evolve.exports.measured import MeasuredKernel


def flashinfer_bench(found: MeasuredKernel) -> str:
    """The Solution: ``run(inputs…, weights…)`` returns the outputs.

    Raises:
        UsageError: `interface_of` refuses the kernel.
    """
    measured = f"{speedup_words(found.evaluation)} by kbevolve {__version__} on {found.device.description}"
    solution = {
        "name": f"{found.name}_{found.kernel.id}",
        "definition": found.task,
        "author": "kbevolve",
        "description": f"Speedup over PyTorch eager: {measured}",
        "spec": {
            # What calls CUDA from Python is Python there: their `cuda` has an entry point in C++.
            "language": "triton" if found.kernel.backend is Backend.TRITON else "python",
            "target_hardware": [f"NVIDIA_{found.gpu}" if found.gpu else "cpu"],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
            "dependencies": _packages(found.kernel.source),
        },
        "sources": [
            {
                "path": "main.py",
                "content": found.fill("flashinfer_bench.py.jinja", interface=interface_of(found)),
            },
            {"path": "kernel.py", "content": found.text},
        ],
    }
    return json.dumps(solution, indent=2) + "\n"


def _packages(source: str) -> list[str]:
    """The packages that a file imports, without Python's own."""
    imported = {"torch"}
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return sorted(imported - sys.stdlib_module_names)
