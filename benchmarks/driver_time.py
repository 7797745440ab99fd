"""What a kernel costs the operating system and the GPU's driver in it, which a host of several GPUs is short of.

    python -m benchmarks.driver_time --problem L1/matmul

Judges the mix's children of a problem one after the other, and adds up the system time of their workers by what they
were asked, with what they had taken when they were ready, and of the judge's own process. Prints a line for each, and
last one JSON object: {"WHAT": milliseconds of system time a child}.
"""

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.throughput.mix import children, small_children
from benchmarks.throughput.problems import problems
from kbevolve.configs.cache_directory import VARIABLE
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.sandbox.worker import Worker

_TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")


def system_ms(pid: int | str) -> float:
    """Milliseconds of system time that a process has taken so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return int(fields[12]) * _TICK_MS


class Ledger:
    """Adds up by what was asked, instead of `Worker`'s own methods."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = defaultdict(float)
        self.wall_ms: dict[str, float] = defaultdict(float)
        self._ask, self._wait_ready, self._kill = Worker.ask, Worker.wait_ready, Worker.kill

    def ask(self, worker: Worker, request: dict[str, Any], **how: Any) -> Any:
        """`Worker.ask`."""
        before, began = system_ms(worker.pid), time.perf_counter()
        try:
            return self._ask(worker, request, **how)
        finally:
            self._add(request["request"], system_ms(worker.pid) - before, began)

    def wait_ready(self, worker: Worker) -> None:
        """`Worker.wait_ready`."""
        began = time.perf_counter()
        self._wait_ready(worker)
        self._add("start", system_ms(worker.pid), began)

    def kill(self, worker: Worker) -> None:
        """`Worker.kill`; the system time of a killed process cannot be read."""
        began = time.perf_counter()
        self._kill(worker)
        self._add("death", 0.0, began)

    def _add(self, what: str, ms: float, began: float) -> None:
        self.ms[what] += max(0.0, ms)
        self.wall_ms[what] += 1e3 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", default="L1/matmul")
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--connections", type=int, default=EvaluationSettings().connections, help="the setting evaluation.connections"
    )
    parser.add_argument("--small", action="store_true", help="small children that need no GPU")
    options = parser.parse_args()
    device = find_device(options.device)
    problem = problems(small=options.small)[options.problem]
    mix = [child for child in (small_children() if options.small else children()) if child.problem == options.problem]
    overrides = {"evaluation.connections": options.connections}
    settings = Settings.load(preset="cpu" if device.type == "cpu" else None, overrides=overrides).evaluation
    with (
        tempfile.TemporaryDirectory(prefix="kbevolve-driver-time-") as cache,
        patch.dict(os.environ, {VARIABLE: cache}),
        Judge(device, settings) as judge,
    ):
        judge.card(problem)
        ledger, mine = Ledger(), system_ms("self")
        with (
            patch.object(Worker, "ask", lambda worker, request, **how: ledger.ask(worker, request, **how)),
            patch.object(Worker, "wait_ready", lambda worker: ledger.wait_ready(worker)),
            patch.object(Worker, "kill", lambda worker: ledger.kill(worker)),
        ):
            for child in mix:
                judge.evaluate(problem, child.kernel)
        ledger.ms["the judge's process"] = system_ms("self") - mine
    for what, ms in sorted(ledger.ms.items(), key=lambda item: -item[1]):
        wall = f", {ledger.wall_ms[what] / len(mix):8.1f} ms of wall time" if what in ledger.wall_ms else ""
        print(f"{what:20} {ms / len(mix):8.1f} ms of system time a child{wall}")
    print(json.dumps({what: round(ms / len(mix), 1) for what, ms in ledger.ms.items()}))


if __name__ == "__main__":
    main()
