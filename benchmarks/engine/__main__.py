"""What the engine itself costs a child, beside a million kernels: instant proposer and judge, a real archive file.

    make bench-engine
    python -m benchmarks.engine [--kernels 1000000] [--children 2000]

A run of that many kernels is written into a fresh archive in bulk, row for row what the search would have left
(tests/benchmarks/test_engine.py compares); another process resumes the run. Kernels in bulk have 0.4 KB, the
measured children are a hand-written kernel of ours with one number changed. What is printed, as JSON, on the last line:

    children_per_s  children of the resumed run a second, all of the loop: choosing, writing, describing, placing
    sample_ms       of it, making a brief: parents, inspirations, history, failures, ideas tried; the mean
    insert_ms       of it, writing a child: birth, evaluation, placement; the mean
    kernels         how many the archive held when the measuring began
    rss_mb          the most memory that the resumed process ever held

The lines before it say the same of a fresh run, and how long filling and replaying took. A million kernels take about
four minutes and 2 GB in the system's temporary directory.
`python -m benchmarks.openevolve_database` measures the same of openevolve's database.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engine.bulk import fill
from benchmarks.engine.measuring import measure
from benchmarks.engine.workload import ISLANDS


def in_own_process(what: str, path: Path, kernels: int, children: int) -> dict[str, float]:
    """Measure in a fresh process, which has used no memory before."""
    words = [sys.executable, "-m", "benchmarks.engine", what, str(path), str(kernels), str(children)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Fill, measure, print."""
    if len(sys.argv) > 1 and sys.argv[1] == "measure":
        print(json.dumps(measure(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=1_000_000, help="kernels in the archive")
    parser.add_argument("--children", type=int, default=2_000, help="children that are measured")
    asked = parser.parse_args()
    children = asked.children // ISLANDS * ISLANDS
    kernels = asked.kernels // ISLANDS * ISLANDS
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({"fresh": in_own_process("measure", Path(folder, "fresh.db"), 0, children)}), flush=True)
        path = Path(folder, "full.db")
        started = time.perf_counter()
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(path, kernels))
        filling.start()
        filling.join()
        filled = {"fill_s": round(time.perf_counter() - started, 1), "file_mb": round(path.stat().st_size / 1e6)}
        print(json.dumps(filled | {"load": round(os.getloadavg()[0], 1)}), flush=True)
        found = in_own_process("measure", path, kernels, children)
        print(json.dumps({"resumed": found}), flush=True)
    print(json.dumps({name: found[name] for name in ("children_per_s", "sample_ms", "insert_ms", "kernels", "rss_mb")}))


if __name__ == "__main__":
    main()
