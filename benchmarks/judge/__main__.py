"""How far the judge's numbers can be trusted, on this machine.

    python -m benchmarks.judge identical --pairs 200      # how often is identical code called faster or slower?
    python -m benchmarks.judge power --contests 20        # how often is a true 1 % or 3 % difference seen?
    python -m benchmarks.judge drift --evaluations 20     # how far apart are reported speedups of one kernel?
    python -m benchmarks.judge agreement                  # triton's do_bench and the profiler beside ours
    python -m benchmarks.judge classes                    # are precisions put in the right class?

Each prints a Markdown table, then one JSON object with the same figures.
"""

import argparse
import importlib
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.judge.kernels import copy_of_reference, delayed, matmul, products, seed_of
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import names_of
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.judging.pipeline import UNREPORTED
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evolve.search.confirmation import confirmations_of

#: Entrants of one contest: a champion and its challengers, each in a process of its own.
CHALLENGERS = 5


def comparisons(contest: Contest, champion: str) -> list[tuple[str, float]]:
    """How each challenger compares with the champion, and the champion's time over the challenger's."""
    found = confirmations_of(contest, run="", generation=0, purpose="challenge", champion=champion)
    return [(one.comparison.value, one.ratio) for one in found if one.kernel != champion]


def identical(device: Device, settings: EvaluationSettings, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Contests among copies of one kernel: every verdict but a tie is false."""
    size = options.size or (2048 if device.type == "cuda" else 384)
    problem = matmul(size)
    counts: Counter[str] = Counter()
    ratios: list[float] = []
    number = 0
    with Judge(device, settings) as judge:
        while sum(counts.values()) < options.pairs:
            kernels = [copy_of_reference(number + index) for index in range(CHALLENGERS + 1)]
            number += len(kernels)
            contest = judge.compete(problem, kernels, rounds=settings.confirm_rounds)
            for standing, ratio in comparisons(contest, kernels[0].id):
                counts[standing] += 1
                ratios.append(ratio)
    logs = [math.log(ratio) for ratio in ratios]
    yield {
        "kernel": f"matmul {size}",
        "pairs": sum(counts.values()),
        "faster": counts["faster"],
        "slower": counts["slower"],
        "tie": counts["tie"],
        "between processes": f"{100 * statistics.pstdev(logs):.2f} %",
        "largest": f"{100 * max(map(abs, logs)):.2f} %",
    }


def power(device: Device, settings: EvaluationSettings, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Contests between a kernel and the same kernel made slower by a known share."""
    size = options.size or 4096
    problem = matmul(size)
    with Judge(device, settings) as judge:
        base_ms = _expect(judge.evaluate(problem, delayed(0))).timing.time_ms or 0.0
        for share in (0.01, 0.03):
            counts: Counter[str] = Counter()
            seen = []
            for _ in range(options.contests):
                quick, slow = delayed(0), delayed(round(share * base_ms * 1e6))
                contest = judge.compete(problem, [slow, quick], rounds=settings.confirm_rounds)
                for standing, ratio in comparisons(contest, slow.id):
                    counts[standing] += 1
                    seen.append(ratio)
            yield {
                "true difference": f"{100 * share:.0f} %",
                "contests": options.contests,
                "seen as faster": counts["faster"],
                "tie": counts["tie"],
                "slower": counts["slower"],
                "measured": f"{100 * (statistics.median(seen) - 1):.2f} %",
            }


def drift(device: Device, settings: EvaluationSettings, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The same kernel evaluated again and again, each time in fresh processes."""
    for name in options.problems:
        problem, kernel = seed_of(name, device.type)
        found = []
        started = time.perf_counter()
        with Judge(device, settings) as judge:
            found = [_expect(judge.evaluate(problem, kernel)) for _ in range(options.evaluations)]
        speedups = [one.timing.speedup or 0.0 for one in found]
        middle = statistics.median(speedups)
        print(name, *(f"{speedup:.4f}" for speedup in speedups), file=sys.stderr)
        held = sum((one.timing.speedup_low or 0) <= middle <= (one.timing.speedup_high or 0) for one in found)
        yield {
            "kernel": name,
            "time": f"{1e3 * statistics.median(one.timing.time_ms or 0.0 for one in found):.1f} us",
            "speedup": f"{middle:.4f}",
            "sd": f"{100 * statistics.pstdev(speedups) / middle:.3f} %",
            "spread": f"{100 * (max(speedups) - min(speedups)) / middle:.3f} %",
            "interval held": f"{held}/{len(found)}",
            "unreported time": f"{sum(UNREPORTED in one.tags for one in found)}/{len(found)}",
            "rounds": statistics.median(len(one.blocks) // 2 for one in found),
            "seconds each": f"{(time.perf_counter() - started) / options.evaluations:.2f}",
        }


def agreement(device: Device, settings: EvaluationSettings, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Other people's stopwatches in a plain process, beside the judge."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    from triton.testing import do_bench

    for name in options.problems:
        problem, kernel = seed_of(name, device.type)
        with Judge(device, settings) as judge:
            ours = _expect(judge.evaluate(problem, kernel)).timing.time_ms or 0.0
        call = _plain_call(problem, kernel)
        theirs = do_bench(call, warmup=100, rep=500, return_mode="median")
        flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(30):
                flush.zero_()
                call()
            torch.cuda.synchronize()
        kernels = [event for event in seen.events() if "Memset" not in event.name and "FillFunctor" not in event.name]
        profiled = sum(event.device_time for event in kernels) / 30 / 1e3
        yield {
            "kernel": name,
            "ours": f"{1e3 * ours:.1f} us",
            "do_bench": f"{1e3 * theirs:.1f} us",
            "ours / do_bench": f"{ours / theirs:.4f}",
            "profiler's kernels": f"{1e3 * profiled:.1f} us",
            "ours / profiler": f"{ours / profiled:.4f}",
        }


def classes(device: Device, settings: EvaluationSettings, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Matrix products of known precision, on two distributions."""
    for draw in ("rand", "randn"):
        problem = matmul(options.size or 4096, draw=draw)
        with Judge(device, settings) as judge:
            for name, (kernel, expected) in products().items():
                found = judge.evaluate(problem, kernel)
                yield {
                    "kernel": name,
                    "inputs": draw,
                    "class": found.accuracy.precision_class,
                    "expected": expected,
                    "right": found.accuracy.precision_class == expected,
                    "error": f"{found.accuracy.error:.2g}" if found.accuracy.error is not None else "none",
                    "fp32 task": found.verdict.name,
                    "KernelBench's allclose": found.accuracy.allclose,
                }


def _plain_call(problem: Problem, kernel: Kernel) -> Callable[[], Any]:
    """The kernel in this process, as a user would call it; it is one of our own seeds."""
    import torch

    # Triton reads a kernel's source back from its file.
    path = Path(tempfile.mkdtemp()) / "kernel.py"
    path.write_text(kernel.source)
    sys.path.insert(0, str(path.parent))
    sys.modules.pop("kernel", None)
    module = importlib.import_module("kernel")
    sys.path.remove(str(path.parent))
    reference = names_of(problem.source_for("cuda"), problem.path)
    with torch.device("cuda"):
        model = module.ModelNew(*reference["get_init_inputs"]()).cuda().eval()
        inputs = [one.cuda() for one in reference["get_inputs"]()]

    def call() -> Any:
        with torch.no_grad():
            return model(*inputs)

    return call


def _expect(found: Evaluation) -> Evaluation:
    if found.verdict is not Verdict.CORRECT:
        raise SystemExit(f"{found.kernel}: {found.verdict.name}: {found.message}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=("identical", "power", "drift", "agreement", "classes"))
    parser.add_argument("problems", nargs="*", default=["L1/matmul", "L1/softmax", "L1/layernorm", "L1/gelu"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--contests", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--size", type=int, help="of the matrices")
    options = parser.parse_intermixed_args()
    device = find_device(options.device)
    if options.question in ("power", "agreement", "classes") and device.type != "cuda":
        raise SystemExit(f"{options.question} needs a CUDA device; this one is {device.description}")
    preset = "cpu" if device.type == "cpu" else None
    settings = Settings.load(preset=preset).evaluation.model_copy(update={"profile": False, "baselines": False})
    started = time.perf_counter()
    ask: Callable[..., Iterator[dict[str, Any]]] = globals()[options.question]
    rows: list[dict[str, Any]] = []
    for row in ask(device, settings, options):
        if not rows:
            print("| " + " | ".join(row) + " |")
            print("|" + "---|" * len(row))
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
        rows.append(row)
    facts = {
        "question": options.question,
        "device": device.description,
        "host": f"{platform.system()} {os.cpu_count()} cores",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "rows": rows,
    }
    print(json.dumps(facts))


main()
