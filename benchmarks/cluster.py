"""How the work of a fleet grows with its judges: evaluations that sleep, on 1 judge and on 4.

    make bench-cluster
    python -m benchmarks.cluster [--local] [--judges 4] [--seconds 1.0] [--kernels 40]

Through Ray, on a cluster of this machine's own, or with --local through processes of this machine. An evaluation is
simulated: it sleeps and computes nothing, so that what is measured is what handing out and bringing back costs, on any
number of cores. Starting is not in the figure. The last line is one JSON object; "speedup" is the throughput of all
judges over that of one.
"""

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.runs.evaluators import find_judge_devices, open_judges

PROBLEM = '''"""It never runs."""


class Model: ...


def get_inputs(): ...


def get_init_inputs(): ...
'''


class SleepingJudge:
    """A judge that takes as long as the kernel says."""

    def __init__(self, device: Device, settings: EvaluationSettings, *, width: int = 1, builders: int = 0) -> None:
        self.device = device
        self.settings = settings
        self.width = width

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        time.sleep(float(kernel.source.partition("SECONDS = ")[2].split()[0]))
        return Evaluation(
            kernel=kernel.id,
            problem=problem.id,
            device=self.device.fingerprint,
            precision=self.settings.precision,
            verdict=Verdict.CORRECT,
        )

    def close(self) -> None:
        """Nothing was started."""


def seconds_of(judges: int, kernels: Sequence[Kernel], workers: str) -> float:
    """Seconds in which so many judges judge all kernels."""
    problem = parse_problem(PROBLEM, name="sleep", path=Path("sleep.py"))
    settings = Settings.from_tree({"work": {"workers": workers, "devices": ["cpu"] * judges}})
    fleet = open_judges(find_judge_devices(settings), settings, judge="benchmarks.cluster:SleepingJudge")
    with fleet, ThreadPoolExecutor(fleet.width) as threads:
        # Threads of a process and connections are made when they are first needed: not timed.
        list(threads.map(lambda kernel: fleet.evaluate(problem, kernel), [_sleeper(0.0)] * 4 * judges))
        started = time.perf_counter()
        found = list(threads.map(lambda kernel: fleet.evaluate(problem, kernel), kernels))
        spent = time.perf_counter() - started
    assert [one.kernel for one in found] == [kernel.id for kernel in kernels], "an evaluation was lost"
    return spent


def _sleeper(seconds: float, number: int = -1) -> Kernel:
    return Kernel.from_source(f"class ModelNew: ...\n\n\nSECONDS = {seconds}\nNUMBER = {number}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--local", action="store_true", help="processes of this machine instead of Ray's actors")
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one evaluation")
    parser.add_argument("--kernels", type=int, default=40, help="for all judges; one judge gets its share of them")
    options = parser.parse_args()
    workers = "local" if options.local else "ray"
    kernels = [_sleeper(options.seconds, number) for number in range(options.kernels)]
    share = kernels[: max(1, options.kernels // options.judges)]
    alone = len(share) / seconds_of(1, share, workers)
    print(f"1 judge: {alone:.3f} evaluations a second")
    together = len(kernels) / seconds_of(options.judges, kernels, workers)
    print(f"{options.judges} judges: {together:.3f} evaluations a second")
    print(
        json.dumps(
            {
                "speedup": round(together / alone, 3),
                "judges": options.judges,
                "workers": workers,
                "evaluation_s": options.seconds,
                "overhead_ms": round(1e3 * (options.judges / together - options.seconds), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
