"""What other processes do to a kernel that is timed on a GPU: why workers that start or compile are stopped meanwhile.

    python -m benchmarks.disturbance [--beside compile --beside compile-apart --beside nothing]

Times kernels call by call, with the L2 flushed: alone, while processes attach the GPU over and over, while they make
contexts, while they compile Triton kernels, on the same cores or on others, and alone once more. Prints a line for
each, and last one JSON object: {"WHAT/KERNEL": {"median", "mean", "p99"}}, in times of what it is alone, where 1.0
means no disturbance.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.contexts import connections_of
from kbevolve.configs.templates import template
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox.gpu import find_gpu
from tests.imported import imported

#: What another process does for ever.
_NEIGHBOUR = """
from benchmarks.contexts import serve
from kbevolve.evaluators.sandbox.gpu import Gpu
from pathlib import Path
gpu = Gpu(name={name!r}, node=Path({node!r}))
serve(gpu, "own", contexts={contexts})
print("begun", flush=True)
while True:
    serve(gpu, "own", contexts={contexts})
"""
#: What a process does for ever that compiles.
_COMPILER = """
import os, subprocess, sys
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
print("begun", flush=True)
while True:
    subprocess.run([sys.executable, "-m", "benchmarks.compiled_templates", "--case", "4096", "--case", "3x3"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
_FLUSHED_INTS = 64 << 20
BESIDE = ("attach", "context", "compile", "compile-apart", "nothing")
#: Until a process that compiles has imported what it needs.
_STARTING_SECONDS = 6.0
#: Cores that this process keeps for itself beside compilers that are kept apart.
_OWN_CORES = 4
#: M, N and K of a product by a template, four launches: kernelbench:1/16.
_PRODUCT = (2048, 4096, 8192)


def calls_us(kernel: Callable[[], object], count: int, flushed: torch.Tensor) -> list[float]:
    """Microseconds of each call on the device: the flush keeps that busy while the host launches the call."""
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        flushed.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        kernel()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * start.elapsed_time(end))
    return found


@contextmanager
def neighbours(what: str, count: int, *, connections: int) -> Iterator[None]:
    """So many processes that do one of `BESIDE`, one thing after the other."""
    cores = sorted(os.sched_getaffinity(0))
    apart = what == "compile-apart" and len(cores) > _OWN_CORES
    with connections_of(connections):
        running = [
            subprocess.Popen([sys.executable, "-c", _program(what)], stdout=subprocess.PIPE, start_new_session=True)
            for _ in range(count if what != "nothing" else 0)
        ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
            if apart:
                os.sched_setaffinity(process.pid, cores[_OWN_CORES:])  # before it starts what compiles
        if apart:
            os.sched_setaffinity(0, cores[:_OWN_CORES])
        if what.startswith("compile"):
            time.sleep(_STARTING_SECONDS)
        yield
    finally:
        os.sched_setaffinity(0, cores)
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _program(what: str) -> str:
    if what.startswith("compile"):
        return _COMPILER
    gpu = find_gpu(find_device("cuda:0"))
    if gpu is None:
        raise SystemExit("this driver does not say which special file belongs to which GPU")
    return _NEIGHBOUR.format(name=gpu.name, node=str(gpu.node), contexts=what == "context")


def template_product(folder: Path) -> Callable[[], object]:
    """A product by the template, whose host is not much faster than the device."""
    source = "\n\n".join(map(template, ("imports", "no_epilogue", "split_pairs", "split_products")))
    m, n, k = _PRODUCT
    a, b, out = (torch.randn(shape, device="cuda") for shape in ((k, m), (k, n), (m, n)))
    split_mm = imported(source, folder, "templates").split_mm
    return lambda: split_mm(a.T, b, out=out)


def summary(found: Sequence[float]) -> dict[str, float]:
    """Median, mean and the 99th percentile."""
    return {
        "median": statistics.median(found),
        "mean": statistics.fmean(found),
        "p99": statistics.quantiles(found, n=100)[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbours", type=int, default=4)
    parser.add_argument(
        "--connections", type=int, default=1, help="of the neighbours' contexts; 0: the driver's number"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kernel, about")
    parser.add_argument("--beside", action="append", choices=BESIDE, help="all without it")
    options = parser.parse_args()
    rows, square = torch.randn(8192, 16384, device="cuda"), torch.randn(4096, 4096, device="cuda")
    few, flushed = torch.randn(1 << 20, device="cuda"), torch.empty(_FLUSHED_INTS, dtype=torch.int32, device="cuda")
    kernels: dict[str, Callable[[], object]] = {
        "add": lambda: few + 1,
        "softmax": lambda: torch.softmax(rows, 1),
        "matmul": lambda: square @ square,
    }
    if torch.cuda.get_device_capability() == (9, 0):
        with tempfile.TemporaryDirectory() as folder:
            kernels["template"] = template_product(Path(folder))
            kernels["template"]()  # Triton reads the file when it compiles
    counts = {}
    for name, kernel in kernels.items():
        calls_us(kernel, 50, flushed)
        counts[name] = int(options.seconds * 1e6 / (statistics.fmean(calls_us(kernel, 50, flushed)) + 150))

    def series() -> dict[str, dict[str, float]]:
        return {name: summary(calls_us(kernel, counts[name], flushed)) for name, kernel in kernels.items()}

    alone = series()
    found: dict[str, dict[str, float]] = {}
    for what in options.beside or BESIDE:
        with neighbours(what, options.neighbours, connections=options.connections):
            beside = series()
        for name, seen in beside.items():
            found[f"{what}/{name}"] = {key: round(value / alone[name][key], 4) for key, value in seen.items()}
            print(f"{what:13} {name:8} {counts[name]} calls: {found[f'{what}/{name}']}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
