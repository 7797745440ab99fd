"""How throughput grows with judges: the mix's children, problem by problem, so many times over for each judge."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from benchmarks.throughput.child import Child
from benchmarks.throughput.copies import copies
from benchmarks.throughput.cores import BusyCores, compilers
from benchmarks.throughput.driver_lock import DriverLock
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.cache_directory import VARIABLE
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.runs.evaluators import find_judge_devices, open_judges

#: Judges a kernel on a problem.
Evaluate = Callable[[Problem, Kernel], Evaluation]


def measure(
    mix: Sequence[Child],
    problems: Mapping[str, Problem],
    *,
    device: str,
    judges: int,
    times: int,
    workers: str,
    width: int = 0,
    connections: int,
    beside: int = 0,
    built: bool = False,
) -> dict[str, Any]:
    """Children an hour of so many judges, each with `times` passes over the mix; starts and preparations left out.

    Caches are empty, no build is done before, unless with `built`: then other judges had the same children. A problem's
    clock runs from the first to the last of its children. At its end judges run out of work one after another, which a
    search does not know: "steady" counts only the children that ended while all judges were full, from the end of a
    problem's first child to the start of its last.

    Args:
        mix: the children.
        problems: theirs, by name.
        device: "cuda" or "cpu".
        judges: one for each device.
        times: passes over the mix for each judge.
        workers: "ray" or "local".
        width: kernels in progress at once for each judge; 0 for what fits this machine.
        connections: the setting `evaluation.connections`.
        beside: compilers on cores that the judges may not use, as judges of other GPUs would have them.
        built: compilers have done their work before and repeat only what fails: what judges share is mostly the driver.

    Raises:
        EvaluatorError: there are not so many devices.
    """
    devices = ("cuda",) * judges if workers == "ray" and device == "cuda" else _local(device, judges)
    preset = "cpu" if device == "cpu" else None
    work = {
        "work.workers": workers,
        "work.devices": list(devices),
        "work.width": width,
        "evaluation.connections": connections,
    }
    settings = Settings.load(preset=preset, overrides=work)
    asked_of = {
        name: copies([one for one in mix if one.problem == name], judges * times)
        for name in dict.fromkeys(child.problem for child in mix)
    }
    found: list[tuple[Child, Evaluation]] = []
    seconds: dict[str, float] = {}
    steady = Steady()
    lock, cores = DriverLock(), BusyCores()
    with tempfile.TemporaryDirectory(prefix="kbevolve-scaling-") as cache, patch.dict(os.environ, {VARIABLE: cache}):
        if built:
            with open_judges(find_judge_devices(settings), settings) as fleet, ThreadPoolExecutor(fleet.width) as pool:
                for name, asked in asked_of.items():
                    list(pool.map(fleet.evaluate, [problems[name]] * len(asked), [one.kernel for one in asked]))
        started = time.perf_counter()
        with open_judges(find_judge_devices(settings), settings) as fleet, ThreadPoolExecutor(fleet.width) as callers:
            for name, asked in asked_of.items():
                problem = problems[name]
                # Each judge prepares the problem when it is first asked.
                list(callers.map(fleet.card, [problem] * (4 * fleet.width)))
                begun = time.perf_counter()
                with compilers(beside), lock, cores, steady.window() as timed:
                    judged = callers.map(timed(fleet.evaluate), [problem] * len(asked), [one.kernel for one in asked])
                    found += zip(asked, judged, strict=True)
                seconds[name] = time.perf_counter() - begun
            judging = sum(seconds.values())
            starting = time.perf_counter() - started - judging
            description, width = fleet.device.description, fleet.width
    surprises = [
        f"{child.name}: {one.verdict.name}, {one.message[:100]}"
        for child, one in found
        if one.verdict is not child.verdict
    ]
    return {
        "device": description,
        "judges": judges,
        "workers": workers,
        "width": width,
        "connections": connections,
        "children": len(found),
        "start_seconds": round(starting, 1),
        "seconds": {name: round(taken, 1) for name, taken in seconds.items()},
        "children_per_hour": round(3600 * len(found) / judging),
        "steady_per_hour": round(steady.per_hour),
        "beside": beside,
        "built": built,
        "busy_cores": cores.mean,
        "driver_lock": lock.shares,
        "phases": _mean_phases([one for _, one in found]),
        "surprises": surprises,
    }


class Steady:
    """The rate at which children ended while every judge was full, over all windows."""

    def __init__(self) -> None:
        self._ended, self._seconds = 0, 0.0

    @property
    def per_hour(self) -> float:
        """0 where no child ended before the last one began."""
        return 3600 * self._ended / self._seconds if self._seconds else 0.0

    @contextmanager
    def window(self) -> Iterator[Callable[[Evaluate], Evaluate]]:
        """For one problem's children: yields what makes a timed evaluation of an evaluation."""
        begins: list[float] = []
        ends: list[float] = []

        def timed(evaluate: Evaluate) -> Evaluate:
            def call(problem: Problem, kernel: Kernel) -> Evaluation:
                begins.append(time.perf_counter())
                try:
                    return evaluate(problem, kernel)
                finally:
                    ends.append(time.perf_counter())

            return call

        yield timed
        first, last = min(ends), max(begins)
        if last > first:
            self._ended += sum(first < end <= last for end in ends)
            self._seconds += last - first


def _mean_phases(found: Sequence[Evaluation]) -> dict[str, float]:
    """Seconds by phase of a child, as a mean over all of them: what grows with the judges is what they share."""
    names = dict.fromkeys(name for one in found for name in one.execution.phases)
    return {name: round(sum(one.execution.phases.get(name, 0.0) for one in found) / len(found), 3) for name in names}


def _local(device: str, judges: int) -> tuple[str, ...]:
    return tuple(f"cuda:{number}" for number in range(judges)) if device == "cuda" else ("cpu",) * judges
