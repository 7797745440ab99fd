"""The same children through our judge, by its public way: one judge, as many callers as it has room for."""

import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.archived import add_all, open_run
from benchmarks.throughput import lines
from benchmarks.throughput.busy import BusyMeter
from benchmarks.throughput.child import Child
from benchmarks.throughput.copies import copies, original
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.cache_directory import VARIABLE
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.judging.judge import Judge, width_for


def evaluate_all(
    mix: Sequence[Child],
    problems: Mapping[str, Problem],
    device: Device,
    settings: EvaluationSettings,
    out: Path,
    *,
    width: int = 0,
    times: int = 1,
    archive: Path | None = None,
) -> None:
    """Judge all children with empty caches; one line for each, then one line about the run.

    The clock of a problem's children runs from the first to the last of them, with nothing built before. Preparing a
    problem (truth, tolerances, card, a worker for the reference) is measured on its own: a search pays it once for
    thousands of children. So is the judge's start.

    Args:
        mix: the children.
        problems: theirs, by name.
        device: to judge on.
        settings: how.
        out: where the lines go.
        width: kernels in progress at once; 0 for what fits this machine.
        times: how often each problem's children come, each time as copies that nothing knows yet; the last of one pass
            end beside the first of the next, as in a search.
        archive: where the evaluations go, too.
    """
    out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kbevolve-throughput-") as cache, patch.dict(os.environ, {VARIABLE: cache}):
        started = time.perf_counter()
        preparing: dict[str, float] = {}
        judging: dict[str, float] = {}
        busy = BusyMeter(device)
        writing = threading.Lock()
        with Judge(device, settings, width=width_for(device, width)) as judge:
            start_seconds = time.perf_counter() - started
            for name in dict.fromkeys(child.problem for child in mix):
                problem = problems[name]
                begun = time.perf_counter()
                judge.card(problem)
                preparing[name] = time.perf_counter() - begun

                def one(child: Child, problem: Problem = problem) -> tuple[Child, Evaluation]:
                    found = judge.evaluate(problem, child.kernel)
                    with writing:
                        lines.append(out, _facts(child, found))
                        print(_row(child, found), flush=True)
                    return child, found

                moment = datetime.now(UTC)
                begun = time.perf_counter()
                with busy, ThreadPoolExecutor(judge.width) as callers:
                    found = list(callers.map(one, copies([child for child in mix if child.problem == name], times)))
                judging[name] = time.perf_counter() - begun
                if archive is not None:
                    _keep(archive, problem, device, moment, [(child.name, child.kernel, one) for child, one in found])
        facts = {
            "run": device.description,
            "width": judge.width,
            "times": times,
            "start_seconds": start_seconds,
            "preparing_seconds": preparing,
            "judging_seconds": judging,
            "busy_share": busy.share,
        }
        lines.append(out, facts)


def _facts(child: Child, found: Evaluation) -> dict[str, Any]:
    return {
        "child": original(child.name),
        "verdict": found.verdict.name,
        "message": found.message[:300],
        "seconds": found.execution.seconds,
        "started_at": found.execution.started_at,
        "phases": dict(found.execution.phases),
        "time_ms": found.timing.time_ms,
        "reference_ms": found.timing.reference_ms,
        "speedup": found.timing.speedup,
        "speedup_low": found.timing.speedup_low,
        "speedup_high": found.timing.speedup_high,
        "allclose": found.accuracy.allclose,
        "error": found.accuracy.error,
        "tags": list(found.tags),
    }


def _row(child: Child, found: Evaluation) -> str:
    speedup = (
        f"{found.timing.speedup:.3f}x" if found.timing.speedup is not None else found.message[:60].replace("\n", " ")
    )
    return f"{child.name:22} {found.verdict.name:12} {found.execution.seconds:7.1f} s  {speedup}"


def _keep(
    path: Path, problem: Problem, device: Device, began: datetime, judged: list[tuple[str, Kernel, Evaluation]]
) -> None:
    """The evaluations in an archive, for the commands that read one; a run for each problem."""
    stem = f"throughput-{problem.name.rpartition('/')[2]}"
    with Archive(path) as archive:
        # Facts are written once: another pass over the mix is another run.
        known = sum(summary.run.id.startswith(stem) for summary in archive.runs.summaries())
        run = open_run(archive, problem, device, name=f"{stem}-{known + 1}", began=began)
        add_all(archive, run, judged)
