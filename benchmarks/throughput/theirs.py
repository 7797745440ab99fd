"""KernelBench's recipe for many children, one by one, each in a fresh process with empty caches."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.throughput import lines
from benchmarks.throughput.child import Child, Outcome
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import Device

RECIPE = Path(__file__).with_name("recipe.py")
#: Seconds after which a child is ended: by then it hangs.
CHILD_SECONDS = 400.0


def evaluate_all(
    mix: Sequence[Child], problems: Mapping[str, Problem], device: Device, out: Path, *, seconds: float
) -> int:
    """Evaluate those that are not in `out` yet, until `seconds` are over; how many are left.

    No child is begun that, at the cost of the dearest so far, would not end in time.
    """
    begun = time.monotonic()
    done = {line["child"] for line in lines.read(out)}
    left = [child for child in mix if child.name not in done]
    dearest = 0.0
    while left and time.monotonic() - begun + dearest < seconds:
        child = left.pop(0)
        found = evaluate(child, problems[child.problem], device, seconds=CHILD_SECONDS)
        dearest = max(dearest, found["seconds"])
        lines.append(out, found)
        print(f"{child.name:22} {found['outcome']:10} {found['seconds']:7.1f} s  {found.get('note', '')}", flush=True)
    return len(left)


def evaluate(child: Child, problem: Problem, device: Device, *, seconds: float) -> dict[str, Any]:
    """One child; the seconds are those of its process, from before its start until after its end."""
    with tempfile.TemporaryDirectory(prefix="kbevolve-recipe-") as folder:
        place = Path(folder)
        (place / "problem.py").write_text(problem.source_for(device.type))
        (place / "child.py").write_text(child.source)
        caches = {
            name: str(place / name.lower()) for name in ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
        }
        # ninja came with this Python.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        where = "cpu" if device.type == "cpu" else f"cuda:{device.index}"
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, str(RECIPE), "problem.py", "child.py", where, "result.json"],
                cwd=place,
                env={**os.environ, **caches, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
            note = f"its process ended with exit code {done.returncode}: {done.stdout.strip()[-200:]}"
        except subprocess.TimeoutExpired:
            note = f"ended after {seconds:g} s"
        spent = time.perf_counter() - started
        try:
            found = json.loads((place / "result.json").read_text())
        except (OSError, ValueError):
            found = {"outcome": Outcome.FAILED.value, "note": note, "phases": {}}
    return {"child": child.name, "seconds": spent, **found}
