"""What starting costs: a light command, and a worker, alone or forked from a fork server.

    python -m benchmarks.starting

Prints one JSON object, in seconds, medians of nine: `kbevolve --help` and `kbevolve archive ls` (a run of 400 kernels)
in fresh processes; a worker that is started on its own, and one that is forked by a fork server.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.archived import add_birth, open_run
from kbevolve.archive.records import Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.sandbox import directories, launch
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker


def seconds_of(act: Callable[[], object]) -> float:
    """Wall seconds of an act."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def command(*words: str) -> None:
    """One of ours, in a fresh process."""
    subprocess.run([sys.executable, "-m", "kbevolve", *words], check=True, capture_output=True)


def worker_seconds(device: Device, fork_server: ForkServer | None) -> float:
    """From the order to start it until it is warm; its end is not counted."""
    started = time.perf_counter()
    worker = Worker(device, fork_server)
    worker.wait_ready()
    spent = time.perf_counter() - started
    worker.kill()
    return spent


def median(measure: Callable[[], float]) -> float:
    """Of nine, in seconds."""
    return round(statistics.median(measure() for _ in range(9)), 3)


def fill(path: Path, device: Device) -> None:
    """An archive of one run with 400 kernels."""
    with Archive(path) as archive:
        run = open_run(archive, find_problem("L1/matmul"), device, name="starting")
        for number in range(400):
            add_birth(archive, run, Kernel.from_source(f"NUMBER = {number}\n"), number=number, note="child")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    device = find_device(parser.parse_args().device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "400.db")
        fill(path, device)
        figures = {
            "help_s": median(lambda: seconds_of(lambda: command("--help"))),
            "archive_ls_s": median(lambda: seconds_of(lambda: command("archive", "ls", "--archive", str(path)))),
        }
    figures["worker_alone_s"] = median(lambda: worker_seconds(device, None))
    fork_server = launch.open_fork_server(device)
    if fork_server is not None:
        try:
            figures["worker_forked_s"] = median(lambda: worker_seconds(device, fork_server))
        finally:
            fork_server.close()
            directories.remove(fork_server.directory)
    print(json.dumps({"device": device.description, **figures}))


if __name__ == "__main__":
    main()
