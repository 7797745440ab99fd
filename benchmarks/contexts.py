"""How many processes a CUDA driver serves in a second: attach the GPUs, make a context, die.

    python -m benchmarks.contexts --devices 0,1,2,3 --connections 0,1 --parallel 8

No torch and nothing of ours is in these processes, so this is the most that a host can start of workers, each of which
has a context of its own. For the first device alone, and for all that are named; for processes that can open every GPU
of the host, and such that can open their own alone, as our workers do; and for each number of connections of a context
(CUDA_DEVICE_MAX_CONNECTIONS; 0: the driver's own). Prints a line for each, and last one JSON object:
{"DEVICES/GRANTED/CONNECTIONS": processes a second}.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from kbevolve.evaluators.sandbox.environment import CONNECTIONS
from kbevolve.evaluators.sandbox.gpu import Gpu, all_gpus, special_files
from kbevolve.evaluators.worker.landlock import restrict_files

Granted = Literal["all", "own"]

_PR_SET_NO_NEW_PRIVS = 38
#: Bytes that a context is asked for: it is there when it has them.
_ASKED = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Seconds of one process, or means of several."""

    attach: float
    context: float
    death: float


@contextmanager
def connections_of(number: int) -> Iterator[None]:
    """Contexts of processes that are started meanwhile have so many connections; 0 for the driver's number."""
    with patch.dict(os.environ):
        os.environ.pop(CONNECTIONS, None)
        if number:
            os.environ[CONNECTIONS] = str(number)
        yield


def serve(gpu: Gpu, granted: Granted, *, contexts: bool = True) -> Served:
    """Fork one process, wait until it has what it wants, and kill it. Call it where nothing has used the driver yet.

    Args:
        gpu: that the process sees.
        granted: the GPUs that it can open.
        contexts: whether it makes a context, or attaches the GPUs and no more.

    Raises:
        RuntimeError: the driver refused.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.write(writer, json.dumps(_want(gpu, granted, contexts=contexts)).encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    words = os.read(reader, 4096)
    os.close(reader)
    began = time.perf_counter()
    os.waitpid(process, 0)
    answer = json.loads(words or '{"error": "none: is there a libcuda.so.1?"}')
    if answer["error"]:
        raise RuntimeError(f"the driver answered with CUDA error {answer['error']}")
    return Served(attach=answer["attach"], context=answer["context"], death=time.perf_counter() - began)


def _want(gpu: Gpu, granted: Granted, *, contexts: bool) -> dict[str, float]:
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.name
    if granted == "own":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        files = [str(path) for path in (Path("/dev/null"), Path("/dev/zero"), *special_files(gpu))]
        restrict_files(readable=["/"], listable=[], devices=files, writable=["/proc/self/task"])
    moments = [time.perf_counter()]
    driver = ctypes.CDLL("libcuda.so.1")
    error = driver.cuInit(0)
    moments.append(time.perf_counter())
    if contexts:
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        error = error or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        error = error or driver.cuCtxSetCurrent(context)
        error = error or driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(_ASKED))
    moments.append(time.perf_counter())
    return {"error": error, "attach": moments[1] - moments[0], "context": moments[2] - moments[1]}


def served_a_second(
    gpus: Sequence[Gpu], granted: Granted, connections: int, *, parallel: int, seconds: float
) -> tuple[float, Served]:
    """Processes a second of so many parallel on each GPU, and what one takes.

    Raises:
        RuntimeError: the driver refused one of them.
    """
    reader, writer = os.pipe()
    with connections_of(connections):
        mine = [_one_after_another(gpu, granted, seconds, writer) for gpu in gpus for _ in range(parallel)]
    os.close(writer)
    with os.fdopen(reader) as lines:
        rows = [json.loads(line) for line in lines]
    for process in mine:
        os.waitpid(process, 0)
    if len(rows) < len(mine):
        raise RuntimeError(f"{len(mine) - len(rows)} of {len(mine)} processes failed")
    attach, context, death = (sum(row[name] for row in rows) / len(rows) for name in ("attach", "context", "death"))
    return sum(row["rate"] for row in rows), Served(attach=attach, context=context, death=death)


def _one_after_another(gpu: Gpu, granted: Granted, seconds: float, writer: int) -> int:
    process = os.fork()
    if process:
        return process
    try:
        began, found = time.perf_counter(), list[Served]()
        while time.perf_counter() - began < seconds:
            found.append(serve(gpu, granted))
        row = {"rate": len(found) / (time.perf_counter() - began)}
        for name in ("attach", "context", "death"):
            row[name] = sum(getattr(one, name) for one in found) / len(found)
        os.write(writer, json.dumps(row).encode() + b"\n")
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="0", help="numbers of GPUs, in the driver's order, with commas between")
    parser.add_argument("--connections", default="0,1", help="numbers with commas between them")
    parser.add_argument("--parallel", type=int, default=8, help="processes at once on each GPU")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    known = all_gpus()
    asked = [int(number) for number in options.devices.split(",")]
    if not all(0 <= number < len(known) for number in asked):
        raise SystemExit(f"--devices {options.devices}: the driver describes {len(known)} GPUs here, numbered from 0")
    gpus = [known[number] for number in asked]
    found: dict[str, float] = {}
    for count in dict.fromkeys((1, len(gpus))):
        for granted in ("all", "own"):
            for connections in map(int, options.connections.split(",")):
                rate, took = served_a_second(
                    gpus[:count], granted, connections, parallel=options.parallel, seconds=options.seconds
                )
                found[f"{count}/{granted}/{connections}"] = round(rate, 2)
                print(
                    f"{count} GPU{'s' * (count > 1)}, {granted} can be opened, {connections or 'usual'} connections: "
                    f"{rate:5.2f} a second; attach {took.attach:.3f} s, context {took.context:.3f} s, "
                    f"death {took.death:.3f} s",
                    flush=True,
                )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
