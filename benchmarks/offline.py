"""What the offline search reaches on this machine: seed, best, eager and Inductor times of several problems.

    python benchmarks/offline.py --generations 50 --out results.json L1/matmul L1/softmax

For every problem: `kbevolve run` in a fresh archive, `kbevolve export`, and `kbevolve evaluate` of the exported file
in a fresh process. Prints a Markdown table, then one JSON object with the same figures, the seconds of the run and the
largest resident size of its processes, summed over the process tree and sampled twice a second.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbevolve.archive.records import Operator, Verdict
from kbevolve.archive.store import Archive

PAGE = os.sysconf("SC_PAGE_SIZE")


def kbevolve(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kbevolve", *arguments]


class PeakMemory(threading.Thread):
    """Largest summed resident size (proportional shares) of a process tree, in bytes, until `stop` is set."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.peak = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.5):
            self.peak = max(self.peak, sum(_proportional_bytes(pid) for pid in _tree(self.root)))


def _tree(root: int) -> list[int]:
    """The process and all its descendants that are alive now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name may hold blanks and brackets: the parent is the second word behind the last bracket.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _proportional_bytes(pid: int) -> int:
    """Resident size with shared pages divided among those who map them; 0 when the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def measure(problem: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run, export and judge again; the figures of one row."""
    archive = folder / "run.db"
    command = ["run", "--problem", problem, "--generations", str(arguments.generations), "--archive", str(archive)]
    started = time.perf_counter()
    process = subprocess.Popen(kbevolve(*command, *arguments.extra))
    memory = PeakMemory(process.pid)
    memory.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    memory.stop.set()
    if code != 0:
        raise SystemExit(f"`kbevolve {' '.join(command)}` ended with {code}")
    row = {"problem": problem, "seconds": round(seconds, 1), "peak_mb": round(memory.peak / 2**20), **_figures(archive)}
    best = folder / "best.py"
    subprocess.run(
        kbevolve("export", "--problem", problem, "--archive", str(archive), "-o", str(best), "--force"), check=True
    )
    judged = subprocess.run(
        kbevolve("evaluate", str(best), "--problem", problem, "--json"), check=True, capture_output=True, text=True
    )
    again = json.loads(judged.stdout.strip().splitlines()[-1])
    row |= {"exported_verdict": again["verdict"], "exported_speedup": again.get("speedup")}
    return row


def _figures(path: Path) -> dict[str, Any]:
    with Archive(path, create=False) as archive:
        run = archive.runs.get()
        evaluations = archive.runs.evaluations(run.id)
        births = archive.runs.births(run.id)
    seeds = {birth.kernel: birth.note for birth in births if birth.operator is Operator.SEED and birth.kernel}
    correct = {key: found for key, found in evaluations.items() if found.verdict is Verdict.CORRECT}
    best = max(correct.values(), key=lambda found: found.timing.speedup_low or 0.0)

    def seed_times(word: str) -> list[float]:
        return [
            correct[key].timing.time_ms or 0.0 for key, note in seeds.items() if word in note.lower() and key in correct
        ]

    handwritten = [
        correct[key].timing.time_ms or 0.0
        for key, note in seeds.items()
        if key in correct and not any(word in note.lower() for word in ("inductor", "reference"))
    ]
    return {
        "kernels": len(evaluations),
        "correct": len(correct),
        "seed_ms": min(handwritten, default=None),
        "best_ms": best.timing.time_ms,
        "eager_ms": best.timing.reference_ms,
        "inductor_ms": min(seed_times("inductor"), default=None),
        "speedup": best.timing.speedup,
        "speedup_low": best.timing.speedup_low,
        "speedup_high": best.timing.speedup_high,
        "best": best.kernel,
        "device": run.device,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    def ms(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f} ms"

    lines = [
        "| problem | best seed | best | eager | Inductor | over eager | exported, judged again | kernels | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        speedup = f"{row['speedup']:.2f}× [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"
        again = f"{row['exported_verdict']} {row['exported_speedup'] or 0:.2f}×"
        times = " | ".join(ms(row[name]) for name in ("seed_ms", "best_ms", "eager_ms", "inductor_ms"))
        counts = f"{row['correct']}/{row['kernels']}"
        lines.append(f"| {row['problem']} | {times} | {speedup} | {again} | {counts} | {row['seconds']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--generations", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="a folder for the archives and the exported files")
    parser.add_argument("--out", type=Path, help="also write the JSON object here, after every problem")
    arguments, arguments.extra = parser.parse_known_args()
    rows = []
    for problem in arguments.problems:
        with tempfile.TemporaryDirectory() as temporary:
            folder = arguments.keep / problem.replace("/", "-") if arguments.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            rows.append(measure(problem, folder, arguments))
        result = {
            "date": datetime.now(UTC).date().isoformat(),
            "host": platform.machine(),
            "command": f"python benchmarks/offline.py {' '.join(sys.argv[1:])}",
            "rows": rows,
        }
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1))
    print(_table(rows))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
