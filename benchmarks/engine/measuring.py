"""Resumes a run, creates more children and takes the time of each step."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine.workload import DEVICE, ISLANDS, chosen, evaluation_of, open_run, problem, start
from kbevolve.archive.records import (
    Backend,
    BirthState,
    Evaluation,
    Kernel,
    Operator,
    Run,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.search.events import Event
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.context import RunContext


@dataclass(slots=True)
class CallTimer:
    """Milliseconds of every call of some methods."""

    taken: list[float] = field(default_factory=list)

    def on(self, owner: object, *names: str) -> Any:
        """A proxy of an object that times some of its methods."""
        return _Timed(owner, {name: self.timed(getattr(owner, name)) for name in names})

    def timed(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """A function of which every call is timed."""

        def call(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return act(*arguments, **named)
            finally:
                self.taken.append((time.perf_counter() - started) * 1e3)

        return call


class _Timed:
    def __init__(self, owner: object, timed: dict[str, Callable[..., Any]]) -> None:
        self._owner, self._methods = owner, timed

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._owner, name)


class InstantProposer:
    """Hands out kernels that were named before the clock was started."""

    def __init__(self, kernels: Iterator[Kernel]) -> None:
        self.kernels = kernels

    def propose(self, brief: Brief) -> Proposal:
        """The next one; called a child of the starting kernel, as in bulk."""
        return Proposal(state=BirthState.CREATED, kernel=next(self.kernels), parents=(start_id(brief),), note="child")


def start_id(brief: Brief) -> str:
    """Id of the first kernel of a run."""
    return brief.learnt.history[0].kernel.id if len(brief.learnt.history) < 2 else brief.parents[0].kernel.id


class InstantEvaluator:
    """Implements `Evaluator`."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        """See `evaluation_of`."""
        return evaluation_of(kernel)


def search_on(archive: Archive, run: Run, generations: int, kernels: Iterator[Kernel]) -> Search:
    """The run, to be gone on with."""
    device = Device(type="cuda", index=0, fingerprint=DEVICE, description=DEVICE)
    return Search(
        RunContext(archive=archive, run=run, problem=problem(), device=device, settings=chosen(generations)),
        proposers={Operator.TUNE: InstantProposer(kernels)},
        evaluator=InstantEvaluator(),
        starts=[[StartingKernel(kernel=start(), note="start")]] * ISLANDS,
    )


def measure(path: Path, kernels: int, children: int) -> dict[str, float]:
    """Resume the run in an archive and create more children."""
    base = start().source
    # Their ids are computed here: naming a kernel is its proposer's work. Their texts would be memory of the benchmark.
    ids = [Kernel.from_source(_numbered(base, number)).id for number in range(children)]
    ready = (Kernel(id=id_, backend=Backend.TRITON, source=_numbered(base, at)) for at, id_ in enumerate(ids))
    briefs, writes = CallTimer(), CallTimer()
    began: list[float] = []
    with Archive(path) as archive:
        run = archive.runs.get() if kernels else open_run(archive)
        last = kernels // ISLANDS
        timed = writes.on(archive, "add_birth", "add_evaluation", "add_placement", "add_generation_end")
        search = search_on(timed, run, last + children // ISLANDS, ready)
        search.generations.briefs = briefs.on(search.generations.briefs, "brief")
        watch(search, last, began)
        started = time.perf_counter()
        search.run()
        ended = time.perf_counter()
    (replayed,) = began
    return {
        "children_per_s": round(children / (ended - replayed), 1),
        "sample_ms": round(statistics.mean(briefs.taken), 3),
        "insert_ms": round(sum(writes.taken) / children, 3),
        "insert_call_ms_p99": round(statistics.quantiles(writes.taken, n=100)[98], 3),
        "kernels": kernels,
        "rss_mb": round(_peak_megabytes()),
        "replay_s": round(replayed - started, 1),
    }


def _numbered(base: str, number: int) -> str:
    return f"{base}\nNUMBER = {number}\n"


def watch(search: Search, last: int, began: list[float]) -> None:
    """Take the time when the first generation after `last` begins."""

    def observe(event: Event) -> None:
        if event.generation > last:
            began.append(time.perf_counter())
            search.observer = None

    search.observer = observe


def _peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024
