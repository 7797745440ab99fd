"""The four ways in which KernelBench times a call (its src/kernelbench/timing.py, March 2026); milliseconds.

Each returns a time for each trial. Inputs are the same in every call, and nothing checks the outputs. Every way but
`do_bench`, which chooses its own numbers of calls, warms up with three.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

Call = Callable[[], Any]
#: Calls that warm up, and timed ones that are not counted, where the method has those.
WARM_UP, DISCARDED = 3, 1
#: Milliseconds for which Triton's `do_bench` warms up and repeats.
_BENCH_WARM_UP, _BENCH_REPEATED = 25, 100
#: What is written before a call to empty the L2, as 8-byte integers: 256 MiB.
_FLUSHED = (32, 1024, 1024)


def settle(device: torch.device) -> None:
    """Wait for all work of a GPU; nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cuda_event(call: Call, trials: int, device: torch.device) -> list[float]:
    """Events around each call, after the L2 was emptied: the launch is inside where the host is slower."""
    _warm_up(call, device)
    times = []
    for _ in range(trials + DISCARDED):
        settle(device)
        start, end = _event(), _event()
        _empty_l2(device)
        start.record()
        call()
        end.record()
        settle(device)
        times.append(float(start.elapsed_time(end)))
    return times[DISCARDED:]


def host_time(call: Call, trials: int, device: torch.device) -> list[float]:
    """The host's clock around a call and the wait for the device."""
    _warm_up(call, device)
    times = []
    for _ in range(trials + DISCARDED):
        settle(device)
        _empty_l2(device)
        start = time.perf_counter()
        call()
        settle(device)
        times.append(1e3 * (time.perf_counter() - start))
    return times[DISCARDED:]


def do_bench(call: Call, trials: int, device: torch.device) -> list[float]:
    """Triton's `do_bench`, which chooses the number of trials itself."""
    from triton import testing

    with torch.cuda.device(device):
        found: list[float] = testing.do_bench(
            call, warmup=_BENCH_WARM_UP, rep=_BENCH_REPEATED, quantiles=None, return_mode="all"
        )
    return found


def do_bench_impl(call: Call, trials: int, device: torch.device) -> list[float]:
    """As `do_bench`, with so many trials: all are launched before the first wait."""
    from triton.runtime import driver

    with torch.cuda.device(device):
        call()
        settle(device)
        cache = driver.active.get_empty_cache_for_benchmark()
        events = [(_event(), _event()) for _ in range(trials)]
        for _ in range(WARM_UP):
            call()
        settle(device)
        for start, end in events:
            driver.active.clear_cache(cache)
            start.record()
            call()
            end.record()
        settle(device)
        return [float(start.elapsed_time(end)) for start, end in events]


#: The methods by KernelBench's names for them.
METHODS: Mapping[str, Callable[[Call, int, torch.device], list[float]]] = {
    "cuda_event": cuda_event,
    "do_bench": do_bench,
    "do_bench_impl": do_bench_impl,
    "host_time": host_time,
}


def _warm_up(call: Call, device: torch.device) -> None:
    for _ in range(WARM_UP):
        call()
        settle(device)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _empty_l2(device: torch.device) -> None:
    """On a CPU there is no counterpart in the recipe."""
    if device.type == "cuda":
        torch.empty(_FLUSHED, dtype=torch.int64, device=device).fill_(42)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
