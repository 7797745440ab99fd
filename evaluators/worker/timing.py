"""Times a block of calls: CUDA events with a flushed L2 on a GPU, the monotonic clock on a CPU."""

import time
from collections.abc import Callable
from typing import Any

import torch

# Bound before any candidate is imported.
_clock = time.perf_counter_ns


class Stopwatch:
    """Times blocks on one device; the same program times the reference and the candidate."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._flush: torch.Tensor | None = None

    def block(self, call: Callable[[], Any], *, warmup: int, calls: int) -> tuple[list[float], Any]:
        """Milliseconds of each of `calls` calls after `warmup` untimed ones, and what the last one returned."""
        for _ in range(warmup):
            call()
        return self._cuda(call, calls) if self._device.type == "cuda" else self._cpu(call, calls)

    def _cpu(self, call: Callable[[], Any], calls: int) -> tuple[list[float], Any]:
        times = []
        output = None
        for _ in range(calls):
            output = None  # freed before the window opens, as it would be in a loop of a user's program
            start = _clock()
            output = call()
            times.append((_clock() - start) / 1e6)
        return times, output

    def _cuda(self, call: Callable[[], Any], calls: int) -> tuple[list[float], Any]:
        if self._flush is None:
            # Writing twice the L2 evicts whatever the call before left there.
            size = 2 * torch.cuda.get_device_properties(self._device).L2_cache_size
            self._flush = torch.empty(max(size, 1 << 20), dtype=torch.uint8, device=self._device)
        starts, ends = ([_event() for _ in range(calls)] for _ in range(2))
        output = None
        torch.cuda.synchronize()
        for start, end in zip(starts, ends, strict=True):
            output = None
            self._flush.zero_()
            start.record()
            output = call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)], output


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
