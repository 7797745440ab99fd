"""What a process that starts on a GPU does to a kernel that is timed there: why starting workers are stopped meanwhile.

    python -m benchmarks.disturbance

Times three kernels call by call, with the L2 flushed: alone, while processes attach the GPU over and over, while they
make contexts, and alone once more. Prints a line for each, and last one JSON object: {"WHAT/KERNEL": {"median", "mean",
"p99"}}, in times of what it is alone, where 1.0 means no disturbance.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from benchmarks.contexts import connections_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox.gpu import find_gpu

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
_FLUSHED_INTS = 64 << 20


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
def neighbours(count: int, *, contexts: bool, connections: int) -> Iterator[None]:
    """So many processes on the first GPU that each fork others, one after the other."""
    gpu = find_gpu(find_device("cuda:0"))
    if gpu is None:
        raise SystemExit("this driver does not say which special file belongs to which GPU")
    program = _NEIGHBOUR.format(name=gpu.name, node=str(gpu.node), contexts=contexts)
    command = [sys.executable, "-c", program]
    with connections_of(connections):
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) for _ in range(count)]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


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
    options = parser.parse_args()
    rows, square = torch.randn(8192, 16384, device="cuda"), torch.randn(4096, 4096, device="cuda")
    few, flushed = torch.randn(1 << 20, device="cuda"), torch.empty(_FLUSHED_INTS, dtype=torch.int32, device="cuda")
    kernels: dict[str, Callable[[], object]] = {
        "add": lambda: few + 1,
        "softmax": lambda: torch.softmax(rows, 1),
        "matmul": lambda: square @ square,
    }
    counts = {}
    for name, kernel in kernels.items():
        calls_us(kernel, 50, flushed)
        counts[name] = int(options.seconds * 1e6 / (statistics.fmean(calls_us(kernel, 50, flushed)) + 150))

    def series() -> dict[str, dict[str, float]]:
        return {name: summary(calls_us(kernel, counts[name], flushed)) for name, kernel in kernels.items()}

    alone = series()
    found: dict[str, dict[str, float]] = {}
    for what in ("attach", "context", "nothing"):
        quiet = what == "nothing"
        with neighbours(
            0 if quiet else options.neighbours, contexts=what == "context", connections=options.connections
        ):
            beside = series()
        for name, seen in beside.items():
            found[f"{what}/{name}"] = {key: round(value / alone[name][key], 4) for key, value in seen.items()}
            print(f"{what:8} {name:8} {counts[name]} calls: {found[f'{what}/{name}']}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
