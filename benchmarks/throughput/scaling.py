"""How throughput grows with judges: the mix's children of one problem, as many times over as there are judges.

Every copy is a child of its own: what its source says of its number makes its hash and its build new.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.throughput.child import Child, Kind
from kbevolve.archive.records import Evaluation
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.hands import find_hands, open_judges

#: Where a child with code for a compiler bears a comment that it reads; others end with a statement.
_COMPILED = (Kind.FAST, Kind.INLINE)
_CODE = 'r"""\n'


def copies(mix: Sequence[Child], count: int) -> list[Child]:
    """All children `count` times, the kinds mixed as in one pass."""
    return [_copy(child, number) for number in range(count) for child in mix]


def measure(
    mix: Sequence[Child], problem: Problem, *, device: str, judges: int, times: int, workers: str, width: int = 0
) -> dict[str, Any]:
    """Children an hour of so many judges, each with `times` passes over the mix; starts and preparations left out.

    Args:
        mix: children of the problem.
        problem: theirs.
        device: "cuda" or "cpu".
        judges: one for each device.
        times: passes over the mix for each judge.
        workers: "ray" or "local".
        width: kernels under way at once for each judge; 0 for what the machine bears.

    Raises:
        EvaluatorError: there are not so many devices.
    """
    devices = ("cuda",) * judges if workers == "ray" and device == "cuda" else _local(device, judges)
    preset = "cpu" if device == "cpu" else None
    work = {"work.workers": workers, "work.devices": list(devices), "work.width": width}
    settings = Settings.load(preset=preset, overrides=work)
    asked = copies(mix, judges * times)
    started = time.perf_counter()
    with open_judges(find_hands(settings), settings) as fleet, ThreadPoolExecutor(fleet.width) as callers:
        # Each judge prepares the problem when it is first asked.
        list(callers.map(lambda _: fleet.card(problem), range(4 * fleet.width)))
        begun = time.perf_counter()
        found: list[Evaluation] = list(callers.map(lambda child: fleet.evaluate(problem, child.kernel), asked))
        seconds = time.perf_counter() - begun
        description, width = fleet.device.description, fleet.width
    surprises = [
        f"{child.name}: {one.verdict.name}, {one.message[:100]}"
        for child, one in zip(asked, found, strict=True)
        if one.verdict is not child.verdict
    ]
    return {
        "device": description,
        "judges": judges,
        "workers": workers,
        "width": width,
        "children": len(asked),
        "start_seconds": round(begun - started, 1),
        "seconds": round(seconds, 1),
        "children_per_hour": round(3600 * len(asked) / seconds),
        "surprises": surprises,
    }


def _copy(child: Child, number: int) -> Child:
    if child.kind in _COMPILED:
        source = child.source.replace(_CODE, f"{_CODE}// copy {number}\n", 1)
    else:
        source = f"{child.source}\nCOPY = {number}\n"
    return replace(child, name=f"{child.name}-copy-{number}", source=source)


def _local(device: str, judges: int) -> tuple[str, ...]:
    return tuple(f"cuda:{number}" for number in range(judges)) if device == "cuda" else ("cpu",) * judges
