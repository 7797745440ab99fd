"""How many workers a host starts and ends in a second: every kernel that is judged has one of its own.

    python -m benchmarks.turnover --devices cuda:0,cuda:1 --connections 0,1,2

For each number of devices, from one to all that are named, and each number of connections (0: the driver's own; what
CUDA_DEVICE_MAX_CONNECTIONS says), a process for each device starts workers as a judge does, and kills them when they
are warm. Prints a line for each, and last one JSON object: {"DEVICES/CONNECTIONS": workers a second}. A CUDA driver
attaches one process at a time, for all devices of a host, so that this is what a host of several is short of.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.synchronize import Barrier

from benchmarks.contexts import connections_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool

#: Seconds until all processes have begun.
_PATIENCE = 120.0


def worked(name: str, parallel: int, seconds: float, begin: Barrier, counted: "multiprocessing.Queue[float]") -> None:
    """Take workers from a pool and kill them, `parallel` side by side, for so long; count workers a second."""
    device = find_device(name)
    with (
        closing(WorkerPool(device, DeviceGate(device), spares=parallel)) as pool,
        ThreadPoolExecutor(parallel) as threads,
    ):
        list(threads.map(lambda _: pool.take().kill(), range(parallel)))
        begin.wait(_PATIENCE)

        def one(_: int) -> float:
            began, count = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                pool.take().kill()
                count += 1
            return count / (time.perf_counter() - began)  # the last one ends later, by seconds where all are slow

        counted.put(sum(threads.map(one, range(parallel))))


def turnover(devices: Sequence[str], connections: int, *, parallel: int, seconds: float) -> float:
    """Workers a second on all of these devices together."""
    context = multiprocessing.get_context("spawn")
    begin, counted = context.Barrier(len(devices)), context.Queue()
    processes = [context.Process(target=worked, args=(name, parallel, seconds, begin, counted)) for name in devices]
    with connections_of(connections):
        for process in processes:
            process.start()
    rate = sum(counted.get(timeout=_PATIENCE + 2 * seconds) for _ in processes)
    for process in processes:
        process.join()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cuda:0", help="names with commas between them")
    parser.add_argument("--connections", default="0", help="numbers with commas between them")
    parser.add_argument("--parallel", type=int, default=8, help="workers at once on each device")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    devices = options.devices.split(",")
    found: dict[str, float] = {}
    for count in (*(few for few in (1, 2, 4) if few < len(devices)), len(devices)):
        for connections in map(int, options.connections.split(",")):
            rate = turnover(devices[:count], connections, parallel=options.parallel, seconds=options.seconds)
            found[f"{count}/{connections}"] = round(rate, 2)
            words = f"{connections} connections" if connections else "the driver's connections"
            print(f"{count} device{'s' * (count > 1)}, {words}: {rate:.2f} workers a second", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
