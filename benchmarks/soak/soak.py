"""The soak itself: judge all children, several at once, and look at what is left."""

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.archived import add_birth, open_run
from benchmarks.soak.faults import PROBLEM, SoakChild, draw_children, rehearsal
from benchmarks.soak.kills import killed_from_outside
from benchmarks.soak.leaks import Holdings, growth_mb, holdings
from kbevolve.archive.records import Evaluation
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.lint import LintReport, lint
from kbevolve.evaluators.lint.process import LintProcess
from kbevolve.evaluators.lint.report import not_python

#: Cheap and short: most of an evaluation is the life of its worker.
SETTINGS = EvaluationSettings(
    trials=2,
    warmup=0,
    least_rounds=3,
    rounds=3,
    calls_per_round=1,
    timing_seconds=0.05,
    baselines=False,
    profile=False,
    build_seconds=60,
    import_seconds=6,
    run_seconds=4,
    total_seconds=90,
)
#: How often a child is judged when the judge itself fails.
_TRIES = 3
#: Children between two looks at what the process holds.
_LOOK_EVERY = 20
#: Megabytes that a thousand children may make the judge grow by.
_MOST_GROWTH = 40.0


def soak(count: int, *, seed: int = 0, width: int = 2, verbose: bool = False) -> dict[str, Any]:
    """Judge `count` children on the CPU; what was found, with "ok" for whether all of it is as it must be."""
    with _lint_refuses_nothing(), tempfile.TemporaryDirectory(prefix="kbevolve-soak-") as folder:
        # torch starts threads when it first computes, and keeps them: a first judge pays for them before we look.
        with Archive(":memory:") as archive:
            _judge_all(archive, rehearsal(width), Path(folder), width=width, verbose=False)
        before = holdings()
        with Archive(Path(folder) / "soak.db") as archive:
            found = _judge_all(archive, draw_children(count, seed), Path(folder), width=width, verbose=verbose)
        found["left_over"] = holdings().beyond(before)
    limit = max(1.0, count / 1000) * _MOST_GROWTH
    found["ok"] = not (
        found["surprises"] or found["lost"] or found["twice"] or found["left_over"] or found["growth_mb"] > limit
    )
    return {"children": count, "seed": seed, "width": width, **found}


def _judge_all(
    archive: Archive, children: list[SoakChild], folder: Path, *, width: int, verbose: bool
) -> dict[str, Any]:
    problem = parse_problem(PROBLEM, name="soak", path=Path("soak.py"))
    device = find_device("cpu")
    run = open_run(archive, problem, device, name="soak")
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    surprises: list[str] = []
    rig_errors = 0
    looks: list[Holdings] = []
    started = time.perf_counter()
    with Judge(device, SETTINGS, disk_cache=DiskCache(folder / "disk_cache"), width=width) as judge:
        judge.card(problem)
        with ThreadPoolExecutor(width) as callers:
            for child, found, errors in _in_order_of_ending(callers, judge, problem, children, width):
                add_birth(archive, run, child.kernel, number=child.number, note=child.fault.name)
                archive.add_evaluation(found)
                rig_errors += errors
                verdicts[child.fault.name][found.verdict.name] += 1
                if found.verdict not in child.fault.verdicts:
                    surprises.append(f"{child.number} {child.fault.name}: {found.verdict.name}: {found.message[:200]}")
                if len(looks) * _LOOK_EVERY <= sum(map(Counter.total, verdicts.values())):
                    looks.append(holdings())
                if verbose:
                    print(
                        f"{child.number:5} {child.fault.name:26} {found.verdict.name:12}"
                        f" {found.execution.seconds:6.2f} s",
                        flush=True,
                    )
    archived = [len(archive.kernels.evaluations(child.kernel.id)) for child in children]
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "verdicts": {name: dict(counts) for name, counts in sorted(verdicts.items())},
        "surprises": surprises,
        "lost": archived.count(0),
        "twice": sum(number > 1 for number in archived),
        "rig_errors": rig_errors,
        "descriptors": _range([look.descriptors for look in looks]),
        "threads": _range([look.threads for look in looks]),
        "descendants": _range([look.descendants for look in looks]),
        "rss_mb": _range([round(look.rss_mb, 1) for look in looks]),
        "growth_mb": round(growth_mb([look.rss_mb for look in looks]), 1),
    }


def _in_order_of_ending(
    callers: ThreadPoolExecutor, judge: Judge, problem: Problem, children: list[SoakChild], width: int
) -> Iterator[tuple[SoakChild, Evaluation, int]]:
    """Each child with its evaluation and the judge's own errors; few are asked for ahead."""
    waiting = iter(children)
    open_: dict[Future[tuple[Evaluation, int]], SoakChild] = {}
    while True:
        while len(open_) < 2 * width and (child := next(waiting, None)) is not None:
            open_[callers.submit(_judge, judge, problem, child)] = child
        if not open_:
            return
        done, _ = wait(open_, return_when=FIRST_COMPLETED)
        for future in done:
            yield (open_.pop(future), *future.result())


def _judge(judge: Judge, problem: Problem, child: SoakChild) -> tuple[Evaluation, int]:
    for errors in range(_TRIES - 1):
        with suppress(EvaluatorError), killed_from_outside(child):
            return judge.evaluate(problem, child.kernel), errors
    with killed_from_outside(child):
        return judge.evaluate(problem, child.kernel), _TRIES - 1


@contextmanager
def _lint_refuses_nothing() -> Iterator[None]:
    """Most faults here are what the lint refuses to run; the judge must survive them without it."""

    def tags_only(process: LintProcess, source: str, **keywords: Any) -> LintReport:
        return replace(lint(source, **keywords), refusal=not_python(source))

    with patch.object(LintProcess, "lint", tags_only):
        yield


def _range(values: list[Any]) -> list[Any]:
    """First, smallest, largest and last."""
    return [values[0], min(values), max(values), values[-1]] if values else []
