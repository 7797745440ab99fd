"""Hardware counters of a kernel's longest launch, read by Nsight Compute where it is installed and permitted.

Nsight Compute starts the profiled process itself and repeats each launch for every group of counters. That is too slow
for every evaluation, so the user asks for it: `kbevolve profile --ncu`.
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
#: Metric of Nsight Compute -> the name in reports; in percent, unless the name says otherwise.
METRICS: Mapping[str, str] = {
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": DRAM,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": SM,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": TENSOR,
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 busy",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 busy",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": "shared memory busy",
    "dram__bytes.sum.per_second": "DRAM GB/s",
    "smsp__cycles_elapsed.avg.per_second": "SM clock MHz",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy",
    "launch__registers_per_thread": "registers a thread",
}
#: Base units (bytes and cycles a second) -> those of the names.
_SCALES = {"DRAM GB/s": 1e-9, "SM clock MHz": 1e-6}
#: Reasons why a warp stalls, each a metric of cycles per issued instruction.
_STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
    "membar", "mio_throttle", "no_instruction", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
#: Reasons shown, the worst first.
_SHOWN_STALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReadings:
    """The readings of Nsight Compute, or why there are none."""

    #: Name of the longest launch in Nsight Compute's spelling; "" when there is none.
    kernel: str = ""
    #: Readings by the names of `METRICS`, and by "stalled: REASON", the share of all stalls in percent.
    readings: Mapping[str, float] = field(default_factory=dict)
    #: Why there are no readings, in one line; else "".
    refusal: str = ""


def command(request: Path) -> list[str]:
    """The command that profiles `worker.nsight` and prints the readings as CSV."""
    metrics = [_DURATION, *METRICS, *(_STALL_METRIC.format(reason) for reason in _STALLS)]
    return [
        "ncu",
        *("--metrics", ",".join(metrics)),
        *("--profile-from-start", "off"),  # the program marks the one call to profile
        *("--target-processes", "application-only"),  # not the compilers that it starts
        *("--clock-control", "none"),  # locking clocks needs privileges and affects other jobs on the device
        *("--print-units", "base"),
        *("--page", "raw"),
        "--csv",
        *(sys.executable, "-P", "-m", _PROGRAM, str(request)),
    ]


def read_counters(problem: Problem, source: str, *, device: Device, precision: str, seconds: float) -> CounterReadings:
    """Run a kernel under Nsight Compute, for at most so many seconds, compilation included.

    The kernel's process has a scrubbed environment and private directories but no sandbox: Nsight Compute needs more of
    the system than a worker may use. Run only kernels that you trust.
    """
    if device.type != "cuda":
        return CounterReadings(refusal="hardware counters are those of a GPU; this is a CPU")
    if shutil.which("ncu") is None:
        return CounterReadings(refusal="no ncu on the PATH; it comes with the CUDA toolkit as Nsight Compute")
    with tempfile.TemporaryDirectory(prefix="kbevolve-ncu-") as name:
        directory = Path(name)
        for part in ("home", "tmp", "work"):
            (directory / part).mkdir()
        request = directory / "request.json"
        request.write_text(
            json.dumps({"problem": problem.source_for(device.type), "kernel": source, "precision": precision})
        )
        environment = worker_environment(device, directory, os.environ)
        search = [str(Path(kbevolve.__file__).parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
        return _run(command(request), directory / "work", environment, seconds)


def parse_readings(text: str) -> CounterReadings:
    """The readings of the longest launch in Nsight Compute's raw page as CSV: names, units, launches."""
    start = text.find('"ID"')
    rows = list(csv.DictReader(text[start:].splitlines())) if start >= 0 else []
    launches = [row for row in rows if _value(row, _DURATION)]  # the row of units holds no numbers
    if not launches:
        return CounterReadings(refusal=_refusal(text))
    longest = max(launches, key=lambda row: _value(row, _DURATION) or 0.0)
    readings = {shown: _value(longest, metric) for metric, shown in METRICS.items()}
    known = {shown: value * _SCALES.get(shown, 1.0) for shown, value in readings.items() if value is not None}
    return CounterReadings(kernel=(longest.get("Kernel Name") or "")[:300], readings=known | _stalls(longest))


def _run(arguments: Sequence[str], directory: Path, environment: Mapping[str, str], seconds: float) -> CounterReadings:
    process = subprocess.Popen(
        arguments,
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
        return CounterReadings(refusal=f"ncu was stopped after {seconds:.0f} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return parse_readings(text)


def _refusal(text: str) -> str:
    if "ERR_NVGPUCTRPERM" in text:
        return "the driver lets only administrators read hardware counters (ERR_NVGPUCTRPERM)"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "nothing")
    return f"ncu saw no launch; its output: {last[:200]}"


def _stalls(row: Mapping[str, str]) -> dict[str, float]:
    cycles = {reason: _value(row, _STALL_METRIC.format(reason)) or 0.0 for reason in _STALLS}
    total = sum(cycles.values())
    worst = sorted(cycles, key=lambda reason: -cycles[reason])[:_SHOWN_STALLS]
    return {f"{STALL}{reason}": 100 * cycles[reason] / total for reason in worst if cycles[reason] > 0}


def _value(row: Mapping[str, str | None], metric: str) -> float | None:
    try:
        value = float((row.get(metric) or "").replace(",", ""))
    except ValueError:  # "n/a", or a metric that this chip lacks
        return None
    return value if math.isfinite(value) else None
