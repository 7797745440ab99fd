"""What kbevolve itself costs: start-up of light commands, and the loop without proposing or evaluating.

    python benchmarks/overheads.py

Prints one JSON object: seconds of `kbevolve --help` and of `kbevolve archive ls` (median of 9 fresh processes), and
milliseconds of the loop for each child, with an instant proposer and evaluator, 400 children of 300 lines each, into an
archive on disk. The proposer's and the evaluator's own time is subtracted.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from kbevolve.archive.records import BirthState, Evaluation, Kernel, Operator, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.brief import Brief, Proposal
from kbevolve.evolve.search import Search
from kbevolve.evolve.starting import StartingKernel, starting_kernels

DEVICE = "benchmark"


class Stopwatch:
    """Seconds spent in the proposer and the evaluator."""

    def __init__(self) -> None:
        self.seconds = 0.0


class InstantProposer:
    def __init__(self, base: str, watch: Stopwatch) -> None:
        self.base = base
        self.numbers = count()
        self.watch = watch

    def propose(self, brief: Brief) -> Proposal:
        started = time.perf_counter()
        kernel = Kernel.from_source(f"{self.base}\nNUMBER = {next(self.numbers)}\n")
        self.watch.seconds += time.perf_counter() - started
        return Proposal(state=BirthState.BORN, kernel=kernel)


class InstantEvaluator:
    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        speedup = 1 + int(kernel.id[:4], 16) / 65536
        return Evaluation(
            kernel=kernel.id,
            problem=problem.id,
            device=DEVICE,
            precision="fp32",
            verdict=Verdict.CORRECT,
            time_ms=1 / speedup,
            reference_ms=1.0,
            speedup=speedup,
            speedup_low=speedup * 0.99,
            speedup_high=speedup * 1.01,
        )


def loop_milliseconds(folder: Path) -> float:
    """Milliseconds of the loop for each child."""
    problem = find_problem("L1/matmul")
    seed = next(start for start in starting_kernels(problem, "cpu", inductor=False) if "hand" in start.note)
    settings = Settings.from_tree({"search": {"generations": 100, "islands": 4}})
    run = Run(
        id="benchmark",
        problem_name=problem.name,
        problem=problem.id,
        device=DEVICE,
        seed=0,
        settings=settings.model_dump_json(),
    )
    watch = Stopwatch()
    with Archive(folder / "loop.db") as archive:
        archive.add_problem(problem)
        archive.add_run(run)
        search = Search(
            archive=archive,
            run=run,
            problem=problem,
            device_type="cpu",
            device=DEVICE,
            settings=settings,
            proposers={Operator.TUNE: InstantProposer(seed.kernel.source, watch)},
            evaluator=InstantEvaluator(watch),
            starts=[[StartingKernel(kernel=seed.kernel, note="seed")]] * 4,
        )
        started = time.perf_counter()
        search.run()
        seconds = time.perf_counter() - started - watch.seconds
        return 1e3 * seconds / len(archive.births(run.id, texts=False))


def command_seconds(*words: str) -> float:
    """Median wall seconds of a command in a fresh process."""
    seconds = []
    for _ in range(9):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "kbevolve", *words], check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        loop = loop_milliseconds(Path(folder))
        listing = command_seconds("archive", "ls", "--archive", str(Path(folder, "loop.db")))
    figures = {
        "help_s": round(command_seconds("--help"), 3),
        "archive_ls_s": round(listing, 3),
        "loop_ms_per_child": round(loop, 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
