"""Hardware counters of a kernel's longest launch, read by Nsight Compute where it is installed and allowed to.

Nsight Compute must start the process that it watches itself, and runs each launch once more for every group of
counters: too slow for an evaluation, and worth it when somebody asks why a good kernel is not better. So it is asked
for by name (`kbevolve profile --ncu`).
"""

import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import kbevolve
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.feedback.bottleneck import DRAM, SM, STALL, TENSOR
from kbevolve.evaluators.sandbox.environment import worker_environment

_PROGRAM = "kbevolve.evaluators.worker.nsight"
_DURATION = "gpu__time_duration.sum"
#: Metric of Nsight Compute -> the name we show; all in percent but the registers.
METRICS: Mapping[str, str] = {
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": DRAM,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": SM,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": TENSOR,
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 busy",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 busy",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy",
    "launch__registers_per_thread": "registers a thread",
}
#: Reasons why a warp waits, each a metric of cycles per issued instruction.
_STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "no_instruction",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
#: Reasons shown, the worst first.
_SHOWN_STALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What Nsight Compute told, or why it told nothing."""

    #: Name of the longest launch, as Nsight Compute tells it; "" when there is none.
    kernel: str = ""
    #: Readings by the names of `METRICS`, and "stalled: REASON", the share of its stalls in percent.
    readings: Mapping[str, float] = field(default_factory=dict)
    #: One line; "" when there are readings.
    refusal: str = ""


def command(orders: Path) -> list[str]:
    """What to run so that `worker.nsight` is profiled; the readings come as CSV on standard output."""
    metrics = [_DURATION, *METRICS, *(_STALL_METRIC.format(reason) for reason in _STALLS)]
    return [
        "ncu",
        *("--metrics", ",".join(metrics)),
        *("--profile-from-start", "off"),  # the program itself marks the one call that counts
        *("--target-processes", "application-only"),  # not the compilers that it may start
        *("--clock-control", "none"),  # locking clocks needs rights, and other jobs may share the device
        *("--print-units", "base"),
        *("--page", "raw"),
        "--csv",
        *(sys.executable, "-P", "-m", _PROGRAM, str(orders)),
    ]


def count(problem: Problem, source: str, *, device: Device, precision: str, seconds: float) -> Counted:
    """Run a kernel under Nsight Compute.

    The kernel's process has a scrubbed environment and directories of its own, but is not confined otherwise: Nsight
    Compute needs more of the system than a worker may have. It is meant for kernels that one would run oneself.

    Args:
        problem: where inputs and weights come from.
        source: the ModelNew file.
        device: a CUDA device.
        precision: the task's.
        seconds: time limit in all, compiling included.
    """
    if device.type != "cuda":
        return Counted(refusal="hardware counters are those of a GPU; this is a CPU")
    if shutil.which("ncu") is None:
        return Counted(refusal="no ncu on the PATH; it comes with the CUDA toolkit as Nsight Compute")
    with tempfile.TemporaryDirectory(prefix="kbevolve-counted-") as name:
        directory = Path(name)
        for part in ("home", "tmp", "work"):
            (directory / part).mkdir()
        orders = directory / "orders.json"
        orders.write_text(
            json.dumps({"problem": problem.source_for(device.type), "kernel": source, "precision": precision})
        )
        environment = worker_environment(device, directory, os.environ)
        search = [str(Path(kbevolve.__file__).parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
        return _watched(command(orders), directory / "work", environment, seconds)


def read_counters(text: str) -> Counted:
    """The readings of the longest launch in Nsight Compute's output (raw page as CSV: names, units, launches)."""
    start = text.find('"ID"')
    rows = list(csv.DictReader(text[start:].splitlines())) if start >= 0 else []
    launches = [row for row in rows if _value(row, _DURATION)]  # the row of units holds words
    if not launches:
        return Counted(refusal=_refusal(text))
    longest = max(launches, key=lambda row: _value(row, _DURATION) or 0.0)
    readings = {shown: _value(longest, metric) for metric, shown in METRICS.items()}
    known = {shown: value for shown, value in readings.items() if value is not None}
    return Counted(kernel=(longest.get("Kernel Name") or "")[:300], readings=known | _stalls(longest))


def _watched(words: Sequence[str], directory: Path, environment: Mapping[str, str], seconds: float) -> Counted:
    process = subprocess.Popen(
        words,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Counted(refusal=f"ncu was stopped after {seconds:.0f} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return read_counters(text)


def _refusal(text: str) -> str:
    if "ERR_NVGPUCTRPERM" in text:
        return "the driver lets only administrators read hardware counters (ERR_NVGPUCTRPERM)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "nothing")
    return f"ncu saw no launch; it said: {said[:200]}"


def _stalls(row: Mapping[str, str]) -> dict[str, float]:
    cycles = {reason: _value(row, _STALL_METRIC.format(reason)) or 0.0 for reason in _STALLS}
    total = sum(cycles.values())
    worst = sorted(cycles, key=lambda reason: -cycles[reason])[:_SHOWN_STALLS]
    return {f"{STALL}{reason}": 100 * cycles[reason] / total for reason in worst if cycles[reason] > 0}


def _value(row: Mapping[str, str | None], metric: str) -> float | None:
    try:
        value = float((row.get(metric) or "").replace(",", ""))
    except ValueError:  # "n/a", or a metric that this chip does not have
        return None
    return value if math.isfinite(value) else None
