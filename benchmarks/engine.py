"""What the engine itself costs a child, beside a million kernels: instant proposer and judge, a real archive file.

    make bench-engine
    python -m benchmarks.engine [--kernels 1000000] [--children 2000]

A run of that many kernels is written into a fresh archive in bulk, row for row what the search would have left
(tests/benchmarks/test_engine.py compares); another process resumes the run. Kernels in bulk have 0.4 KB, the
measured children are a hand-written kernel of ours with one number changed. What is printed, as JSON, on the last line:

    children_per_s  children of the resumed run a second, all of the loop: choosing, writing, describing, placing
    sample_ms       of it, making a brief: parents, inspirations, history, failures, ideas tried; the mean
    insert_ms       of it, writing a child: birth, evaluation, placement; the mean
    kernels         how many the archive held when the measuring began
    rss_mb          the most memory that the resumed process ever held

The lines before it say the same of a fresh run, and how long filling and replaying took. A million kernels take about
four minutes and 2 GB in the system's temporary directory.
`python -m benchmarks.openevolve_database` measures the same of openevolve's database.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from kbevolve.archive import rows
from kbevolve.archive.identity import digest, normalise
from kbevolve.archive.parts import grouped
from kbevolve.archive.records import (
    Backend,
    Birth,
    BirthState,
    Evaluation,
    Kernel,
    Operator,
    Placement,
    Run,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.search.events import Event
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.context import RunContext
from kbevolve.islands.niches import describe
from kbevolve.islands.source.canonical import canonical_form, canonical_id, form_id

DEVICE = "benchmark"
ISLANDS = 4
SEED = 0
#: Placeholder for the number of a kernel; no skeleton holds it otherwise.
_STAND_IN = 987654321
#: Rows in one transaction of the bulk path.
BATCH = 20_000
#: Of every ten children one is wrong.
WRONG = 0.1

#: Skeletons of the kernels in bulk; each falls in a niche of its own. Already normalised: no comment, no blank line.
SKELETONS = tuple(
    f"""import torch
import triton
import triton.language as tl
NUMBER = {{number}}
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    at = start + tl.arange(0, BLOCK)
    {body}
    tl.store(out + at, value, mask=at < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.numel() // 128,)](x, out, x.numel(), BLOCK=128)
        return out
"""
    for body in (
        "value = tl.load(x + at)",
        "value = tl.sum(tl.load(x + at))",
        "value = tl.dot(tl.load(x + at), tl.load(x + at))",
        "value = tl.load(x + at, eviction_policy='evict_first')",
    )
)


def chosen(generations: int) -> Settings:
    """Without migration, so that the bulk path knows every placement; no kernel improves on another for long."""
    search = {"generations": generations, "islands": ISLANDS, "migration_every": 0, "seed": SEED, "patience": 0}
    return Settings.from_tree({"search": search})


def problem() -> Problem:
    """Any; no kernel is judged."""
    return find_problem("L1/gelu")


def open_run(archive: Archive) -> Run:
    """The run, at its beginning."""
    archive.add_problem(problem())
    run = Run(
        id="engine",
        problem_name=problem().name,
        problem=problem().id,
        device=DEVICE,
        seed=SEED,
        settings=chosen(0).model_dump_json(),
    )
    archive.add_run(run)
    return run


def evaluation_of(kernel: Kernel) -> Evaluation:
    """The instant verdict: decided by the kernel's id."""
    draw = int(kernel.id, 16) / 2**64
    facts: dict[str, Any] = dict(kernel=kernel.id, problem=problem_id(), device=DEVICE, precision="fp32")
    if draw < WRONG:
        return grouped(Evaluation, **facts, verdict=Verdict.WRONG, message="error 3.1e-01 against the fp64 truth")
    return grouped(
        Evaluation,
        **facts,
        verdict=Verdict.CORRECT,
        time_ms=1 / draw,
        reference_ms=1.0,
        speedup=draw,
        speedup_low=draw * 0.99,
        speedup_high=draw * 1.01,
    )


@cache
def problem_id() -> str:
    """Id of the problem, whose file is not read a million times."""
    return problem().id


def start() -> Kernel:
    """The starting kernel of every island."""
    (file,) = (file for file in seed_files("L1/gelu", "cuda") if "triton" in file.name)
    return Kernel.from_source(file.read_text(encoding="utf-8"))


def bulk_kernel(number: int) -> Kernel:
    """A kernel of the bulk path."""
    source = SKELETONS[number % len(SKELETONS)].format(number=number)
    return Kernel(id=digest(source), backend=Backend.TRITON, source=source)


# ---- filling ---------------------------------------------------------------------------------------------------------


def bulk_rows(run: Run, kernels: int) -> Iterator[tuple[str, rows.Row]]:
    """What a run of so many kernels leaves, one child an island and generation; its parents are the start.

    A tuple of a table and a row, in an order that references allow.
    """
    for number in range(len(SKELETONS)):
        assert normalise(bulk_kernel(number).source) == bulk_kernel(number).source
    # Forms differ in the number alone, as their kernels do: to parse a million of them would take minutes.
    forms = [canonical_form(SKELETONS[at].format(number=_STAND_IN)) for at in range(len(SKELETONS))]
    niches = [describe(bulk_kernel(number)).key for number in range(len(SKELETONS))]
    first = start()
    best: list[dict[str, float]] = [{} for _ in range(ISLANDS)]

    def child(kernel: Kernel, niche: str, form: str, generation: int, island: int) -> Iterator[tuple[str, rows.Row]]:
        found = evaluation_of(kernel)
        seed = generation == 0
        birth = Birth(
            run=run.id,
            generation=generation,
            island=island,
            slot=0,
            operator=Operator.SEED if seed else Operator.TUNE,
            state=BirthState.CREATED,
            parents=() if seed else (first.id,),
            kernel=kernel.id,
            canonical_hash=form,
            note="start" if seed else "child",
        )
        if not seed or island == 0:
            yield "kernels", rows.kernel_row(kernel)
            yield "evaluations", {**rows.evaluation_row(found), "at": ""}
        yield "births", {**rows.birth_row(birth), "at": ""}
        fitness = found.timing.speedup_low or 0.0
        if found.verdict is Verdict.CORRECT and fitness > best[island].get(niche, -1.0):
            best[island][niche] = fitness
            placement = Placement(
                run=run.id, island=island, niche=niche, kernel=kernel.id, generation=generation, via="birth"
            )
            yield "placements", rows.placement_row(placement)

    for island in range(ISLANDS):
        yield from child(first, describe(first).key, canonical_id(first.source), 0, island)
    yield "generation_ends", {"run": run.id, "generation": 0, "at": ""}
    for number in range(kernels):
        generation, island = 1 + number // ISLANDS, number % ISLANDS
        form = form_id(forms[number % len(forms)].replace(str(_STAND_IN), str(number)))
        yield from child(bulk_kernel(number), niches[number % len(niches)], form, generation, island)
        if island == ISLANDS - 1:
            yield "generation_ends", {"run": run.id, "generation": generation, "at": ""}


def fill(path: Path, kernels: int) -> None:
    """Write a run of so many kernels into a new archive."""
    with Archive(path) as archive:
        run = open_run(archive)
        connection = archive._connection
        connection.rows("pragma cache_size = -1000000")  # a GB, here only: keys of kernels are random
        everything = bulk_rows(run, kernels)
        while batch := list(islice(everything, BATCH)):
            tables: dict[str, list[rows.Row]] = {}
            for table, row in batch:
                tables.setdefault(table, []).append(row)
            with connection.transaction():
                for table in ("kernels", "births", "evaluations", "placements", "generation_ends"):
                    connection.insert_all(table, tables.get(table, []))


# ---- measuring -------------------------------------------------------------------------------------------------------


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
        search.creator.briefs = briefs.on(search.creator.briefs, "brief")
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


def in_own_process(what: str, path: Path, kernels: int, children: int) -> dict[str, float]:
    """Measure in a fresh process, which has used no memory before."""
    words = [sys.executable, "-m", "benchmarks.engine", what, str(path), str(kernels), str(children)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Fill, measure, print."""
    if len(sys.argv) > 1 and sys.argv[1] == "measure":
        print(json.dumps(measure(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000, help="kernels in the archive")
    parser.add_argument("--children", type=int, default=2_000, help="children that are measured")
    asked = parser.parse_args()
    children = asked.children // ISLANDS * ISLANDS
    kernels = asked.kernels // ISLANDS * ISLANDS
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"fresh": in_own_process("measure", Path(folder, "fresh.db"), 0, children)}), flush=True)
        path = Path(folder, "full.db")
        started = time.perf_counter()
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(path, kernels))
        filling.start()
        filling.join()
        filled = {"fill_s": round(time.perf_counter() - started, 1), "file_mb": round(path.stat().st_size / 1e6)}
        print(json.dumps(filled | {"load": round(os.getloadavg()[0], 1)}), flush=True)
        found = in_own_process("measure", path, kernels, children)
        print(json.dumps({"resumed": found}), flush=True)
    print(json.dumps({name: found[name] for name in ("children_per_s", "sample_ms", "insert_ms", "kernels", "rss_mb")}))


if __name__ == "__main__":
    main()
