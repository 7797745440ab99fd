"""How long an author waits for a verdict: from the file to its verdict, and from a command to a run's first verdicts.

    python -m benchmarks.latency --out FILE [--problem L1/matmul] [--kernel FILE --of PROBLEM] [--kernelbench DIR]

For each problem, with empty caches: a run of the starting kernels alone, with the second after the command in which
each evaluation began and had its verdict; then one judge, which gets the children of the throughput mix one after the
other (without those that need torch's headers). FILE gets one JSON object a verdict; the table of phases is printed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.throughput import lines
from benchmarks.throughput.child import Kind
from benchmarks.throughput.mix import children, small_children
from benchmarks.throughput.problems import problems
from kbevolve.archive.records import Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.cache_directory import VARIABLE
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.judging.judge import Judge, width_for

#: What ends a run after its starting kernels are judged.
STARTS_ALONE = ("--generations", "0", "--no-baselines", "--set", "evaluation.confirm_rounds=0")


@contextmanager
def empty_cache() -> Iterator[Path]:
    """A folder that holds the judge's cache and torch.compile's meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="kbevolve-latency-") as folder,
        patch.dict(os.environ, {VARIABLE: f"{folder}/cache", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}),
    ):
        yield Path(folder)


def run(problem: str, out: Path, options: Sequence[str]) -> None:
    """The command `run` with these options, and a line for each of its verdicts, in the order in which they began."""
    with empty_cache() as folder:
        archive = folder / "run.db"
        command = ["run", "--problem", problem, "--archive", str(archive), *STARTS_ALONE, *options]
        started = time.time()
        subprocess.run([sys.executable, "-m", "kbevolve", *command], check=True, stdout=subprocess.DEVNULL)
        with Archive(archive) as archive_of_run:
            found = archive_of_run.runs.evaluations(archive_of_run.runs.get().id)
        for number, one in enumerate(sorted(found.values(), key=lambda one: one.execution.started_at)):
            seconds = one.execution.started_at + one.execution.seconds - started
            row = {"problem": problem, "row": f"verdict {number + 1} of a run", "verdict": one.verdict.name}
            row |= {"began": one.execution.started_at - started, "seconds": seconds}
            lines.append(out, row | {"phases": dict(one.execution.phases)})


def judge(problem: Problem, kernels: Sequence[tuple[str, Kernel]], device: Device, out: Path) -> None:
    """One judge, a line for its start, one for the preparation of the problem and one for each kernel."""
    settings = Settings.load(preset="cpu" if device.type == "cpu" else None, overrides={}).evaluation
    begun = time.perf_counter()
    with empty_cache(), Judge(device, settings, width=width_for(device)) as judge:
        started = time.perf_counter()
        judge.card(problem)
        prepared = time.perf_counter()
        lines.append(out, {"problem": problem.name, "row": "judge", "seconds": started - begun})
        lines.append(out, {"problem": problem.name, "row": "preparation", "seconds": prepared - started})
        for name, kernel in kernels:
            found = judge.evaluate(problem, kernel)
            row = {"problem": problem.name, "row": name, "verdict": found.verdict.name}
            lines.append(out, row | {"seconds": found.execution.seconds, "phases": dict(found.execution.phases)})


def table(rows: Sequence[dict[str, object]]) -> str:
    """Markdown: a row for each verdict, a column for each phase."""
    phases = list(dict.fromkeys(name for row in rows for name in row.get("phases", {})))  # type: ignore[attr-defined]
    text = [f"| problem | what | verdict | seconds | {' | '.join(phases)} |", "|---" * (len(phases) + 4) + "|"]
    for row in rows:
        spent = row.get("phases", {})
        cells = [f"{spent[name]:.2f}" if name in spent else "" for name in phases]  # type: ignore[index,operator]
        text.append(
            f"| {row['problem']} | {row['row']} | {row.get('verdict', '')} | {row['seconds']:.2f} | "
            f"{' | '.join(cells)} |"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of results, one JSON object a line")
    parser.add_argument("--problem", action="append", help="a problem of the mix; all four without it")
    parser.add_argument("--kernel", type=Path, action="append", default=[], help="judge this file instead of the mix")
    parser.add_argument("--of", help="the problem of these files")
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="small children, which need no GPU")
    options = parser.parse_args()
    device = find_device(options.device)
    chosen = ["--device", options.device]
    if options.kernel:
        problem = find_problem(options.of, kernelbench=options.kernelbench)
        checkout = ["--kernelbench", str(options.kernelbench)] if options.kernelbench else []
        run(options.of, options.out, [*chosen, *checkout])
        judge(
            problem, [(file.stem, Kernel.from_source(file.read_text())) for file in options.kernel], device, options.out
        )
    else:
        known = problems(small=options.small)
        mix = [one for one in (small_children() if options.small else children()) if one.kind is not Kind.INLINE]
        for name in options.problem or known:
            run(name, options.out, chosen)
            judge(known[name], [(one.name, one.kernel) for one in mix if one.problem == name], device, options.out)
    print(table(lines.read(options.out)))


if __name__ == "__main__":
    main()
