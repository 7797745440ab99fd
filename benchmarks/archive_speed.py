"""How fast the archive is: writing a child, reading a run in a small and in a large archive, `archive ls`.

Run it as ``python benchmarks/archive_speed.py``; it prints one JSON object. The file is made in the system's temporary
directory, so a disk under it counts.
"""

import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kbevolve.archive.records import (
    Birth,
    BirthState,
    Evaluation,
    Kernel,
    Measurement,
    Operator,
    Run,
    StopReason,
    Verdict,
)
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem

#: Characters of a kernel, a prompt and a reply: what an LLM run writes for each child.
SOURCE, PROMPT, REPLY = 4_000, 12_000, 6_000
#: Births of one run: one of the default length, and a hundred of them.
SMALL, LARGE = 200, 20_000

PROBLEM = Problem(name="L1/matmul", source="# benchmark\n", path=Path("matmul.py"), cpu_sizes={}, summary="")
BLOCKS = tuple(
    Measurement(role=role, round=number, times_ms=tuple(1.0 + 0.001 * call for call in range(10)))
    for number in range(10)
    for role in ("child", "reference")
)


def start_run(archive: Archive, run_id: str) -> None:
    """One more run in the archive."""
    archive.add_problem(PROBLEM)
    archive.add_run(
        Run(
            id=run_id,
            problem_name=PROBLEM.name,
            problem=PROBLEM.id,
            device="cpu/benchmark",
            seed=0,
            settings="{}",
            created=datetime.now(UTC).isoformat(),
        )
    )


def write_child(archive: Archive, run_id: str, number: int) -> float:
    """A birth and its evaluation as a run writes them; milliseconds."""
    kernel = Kernel.from_source(f"# {'x' * SOURCE}\nname = '{run_id} {number}'\n")
    birth = Birth(
        run=run_id,
        generation=number // 4,
        island=number % 4,
        slot=0,
        operator=Operator.MUTATE,
        state=BirthState.BORN,
        kernel=kernel.id,
        note="BLOCK 8 -> 16",
        prompt=f"{number}{'p' * PROMPT}",
        reply=f"{number}{'r' * REPLY}",
        model="benchmark",
    )
    evaluation = Evaluation(
        kernel=kernel.id,
        problem=PROBLEM.id,
        device="cpu/benchmark",
        precision="fp32",
        verdict=Verdict.CORRECT,
        speedup=1.0 + number / 1e5,
        speedup_low=1.0 + number / 1e5,
        speedup_high=1.1 + number / 1e5,
        blocks=BLOCKS,
    )
    started = time.perf_counter()
    archive.add_birth(birth, kernel=kernel)
    archive.add_evaluation(evaluation)
    return (time.perf_counter() - started) * 1000


def load_ms(archive: Archive, run_id: str, *, texts: bool) -> float:
    """Everything a resumed search reads; the median of five, in milliseconds."""

    def load() -> None:
        archive.births(run_id, texts=texts)
        archive.kernels(run_id)
        archive.ideas(run_id)
        archive.evaluations(run_id)
        archive.placements(run_id)

    return median_ms(load, times=5)


def median_ms(act: Callable[[], object], *, times: int) -> float:
    """Median milliseconds of an act."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        act()
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def ls_seconds(path: Path) -> float:
    """Wall time of `kbevolve archive ls` in a process of its own; the median of five, in seconds."""
    command = [sys.executable, "-m", "kbevolve", "archive", "ls", "--archive", str(path)]
    return median_ms(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), times=5) / 1000


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kbevolve.db"
        with Archive(path) as archive:
            start_run(archive, "small")
            small = [write_child(archive, "small", number) for number in range(SMALL)]
            alone = load_ms(archive, "small", texts=True)
            ls_small = ls_seconds(path)
            start_run(archive, "large")
            large = [write_child(archive, "large", number) for number in range(LARGE)]
            archive.add_stop("large", StopReason.GENERATIONS)
            result = {
                "date": datetime.now(UTC).date().isoformat(),
                "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
                f"SQLite {sqlite3.sqlite_version}",
                "insert_ms_median": round(statistics.median(large), 3),
                "insert_ms_first_200_median": round(statistics.median(small), 3),
                "insert_ms_last_200_median": round(statistics.median(large[-SMALL:]), 3),
                "insert_ms_p99": round(statistics.quantiles(large, n=100)[98], 3),
                "load_200_births_ms": round(alone, 2),
                "load_200_births_beside_20000_ms": round(load_ms(archive, "small", texts=True), 2),
                "load_20000_births_ms": round(load_ms(archive, "large", texts=True), 1),
                "load_20000_births_without_texts_ms": round(load_ms(archive, "large", texts=False), 1),
            }
        result |= {
            "archive_ls_200_births_s": round(ls_small, 3),
            "archive_ls_20200_births_s": round(ls_seconds(path), 3),
            "file_mb": round(path.stat().st_size / 1e6, 1),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
