"""Judges the reference of each problem as if it were a kernel: an honest kernel that the judge must accept.

    python -m benchmarks.references --kernelbench DIR --out FILE [--jobs 4] [--level 1] [--problems 1/19,2/40]

Several processes share the device, so no times are shown. FILE gets one JSON object a problem; those in it already are
left out. On CUDA an object has two peaks of memory in GiB: of the tensors of the judge's own process, without what it
shares with workers, and of the whole device, from samples. At the end come a table of verdicts, every problem that is
not CORRECT, the problems with a flag about their weights or KernelBench's tolerance, and one JSON object. Nothing is
forced: degenerate and random problems are REFUSED.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem, kernelbench_names
from kbevolve.configs.errors import KBEvolveError
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge

#: All trials, and as few timed calls as the judge makes.
SETTINGS = EvaluationSettings(
    warmup=1,
    least_rounds=3,
    rounds=3,
    calls_per_round=2,
    timing_seconds=0.5,
    baselines=False,
    profile=False,
)

_SAMPLE_SECONDS = 0.01

#: Tags of which the problems are listed.
SHOWN_TAGS = ("degenerate", "scaled-weights", "tf32-reference")


class _Peak:
    """The most memory in use from now on."""

    def __init__(self, device: Device) -> None:
        self._device, self._used, self._stopped = device, 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device.index)
            self._thread.start()

    def _sample(self) -> None:
        while not self._stopped.wait(_SAMPLE_SECONDS):
            free, total = torch.cuda.mem_get_info(self._device.index)
            self._used = max(self._used, total - free)

    def gib(self) -> dict[str, float]:
        """Both peaks, at the end; nothing on a CPU."""
        if self._device.type != "cuda":
            return {}
        self._stopped.set()
        self._thread.join()
        peaks = {"judge_gib": torch.cuda.max_memory_allocated(self._device.index), "device_gib": self._used}
        return {name: round(peak / 2**30, 2) for name, peak in peaks.items()}


def judge_all(names: list[str], checkout: Path, out: Path, device: str) -> None:
    """Judge these problems in this process, and append a line to `out` for each."""
    cache = DiskCache(out.parent / "cache")
    with Judge(find_device(device), SETTINGS, disk_cache=cache) as judge:
        for name in names:
            started = time.monotonic()
            line: dict[str, object] = {"problem": name}
            peak = _Peak(judge.device)
            try:
                problem = find_problem(name, kernelbench=checkout)
                found = judge.evaluate(problem, Kernel.from_source(as_model_new(problem.source_for(judge.device.type))))
                line |= {"verdict": found.verdict.name, "message": found.message, "tags": found.tags}
                line |= {"error": found.accuracy.error, "reference_error": found.accuracy.reference_error}
            except (KBEvolveError, torch.OutOfMemoryError) as error:
                line |= {"verdict": "NOT JUDGED", "message": str(error)}
            line |= peak.gib()
            with out.open("a") as file:
                file.write(json.dumps(line | {"seconds": round(time.monotonic() - started, 2)}) + "\n")


def read(out: Path) -> list[dict[str, object]]:
    """The lines of a file; [] where there is none."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main() -> None:
    """Judge all problems, in `--jobs` processes side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True, help="a checkout of KernelBench")
    parser.add_argument("--out", type=Path, required=True, help="file of results, one JSON object a line")
    parser.add_argument("--level", action="append", help="a level of KernelBench; all of 1 to 3 without it")
    parser.add_argument("--problems", help="numbers of problems with their levels, such as 1/19,2/40; all without it")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--names", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.names:
        judge_all(options.names.split(","), options.kernelbench, options.out, options.device)
        return
    levels = options.level or ["1", "2", "3"]
    known = {str(line["problem"]) for line in read(options.out)}
    wanted = [name for name in kernelbench_names(options.kernelbench) if name.split(":")[1].split("/")[0] in levels]
    if options.problems:
        chosen = [f"kernelbench:{number}" for number in options.problems.split(",")]
        if unknown := sorted(set(chosen) - set(wanted)):
            parser.error(f"--problems: {', '.join(unknown)} not among the problems of {options.kernelbench}")
        wanted = [name for name in wanted if name in chosen]
    names = [name for name in wanted if name not in known]
    started = time.monotonic()
    words = [sys.executable, "-m", "benchmarks.references", "--kernelbench", str(options.kernelbench)]
    words += ["--out", str(options.out), "--device", options.device]
    jobs = [
        subprocess.Popen([*words, "--names", ",".join(names[number :: options.jobs])], start_new_session=True)
        for number in range(min(options.jobs, len(names)))
    ]
    for job in jobs:
        try:
            job.wait(max(0.0, started + options.seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, 9)
    lines = [line for line in read(options.out) if line["problem"] in wanted]
    counts = Counter(str(line["verdict"]) for line in lines)
    print("| verdict | problems |\n|---|---|")
    for verdict, count in counts.most_common():
        print(f"| {verdict} | {count} |")
    print(f"| not run | {len(wanted) - len(lines)} |\n")
    for line in sorted(lines, key=lambda line: str(line["problem"])):
        if line["verdict"] != Verdict.CORRECT.name:
            print(f"- {line['problem']}: {line['verdict']}: {str(line['message'])[:300]}")
    for tag in SHOWN_TAGS:
        print(f"- {tag}: {', '.join(str(line['problem']) for line in lines if tag in line.get('tags', ()))}")
    print(json.dumps({"problems": len(wanted), **counts, "seconds": round(time.monotonic() - started)}))


if __name__ == "__main__":
    main()
