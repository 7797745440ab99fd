"""What it costs to launch a call: the time of the host, and the time that KernelBench's way of measuring shows.

The candidate shares this process and gets the same inputs in every call, so both are advice and never evidence.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kbevolve.evaluators.worker.timing import elapsed, new_event, record, synchronize

# Bound before any candidate is imported: patching torch or time later does not change them.
_clock = time.perf_counter_ns
_fill = torch.Tensor.fill_

#: Most calls, after one that is not counted, and seconds after which no third one begins: other kernels wait meanwhile.
_MOST_CALLS, _SECONDS = 10, 0.05
#: What KernelBench writes before each call, as 8-byte integers: 256 MiB.
_FLUSHED = 32 << 20


def launch_cost(call: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Milliseconds of a call on a GPU as KernelBench times it, and of the host until a call returns.

    KernelBench's method `cuda_event` (its src/kernelbench/timing.py, March 2026) waits for the device, writes 256 MiB
    to flush the L2, records an event, calls, and records another event. The host launches while the device still
    writes; what it needs beyond that is inside the events. The first call is not counted. Inputs are those of the call
    before.

    Args:
        call: runs the kernel once on the default stream; it must have run before, so that nothing compiles in it.
        device: a CUDA device.

    Returns:
        ``kernelbench_ms``, the mean as KernelBench reports it, and ``host_ms``, the median.
    """
    stream = torch.cuda.default_stream(device)
    start, end, flushed = new_event(), new_event(), torch.empty(_FLUSHED, dtype=torch.int64, device=device)
    times_ms: list[float] = []
    hosts_ms: list[float] = []
    began = _clock()
    while len(times_ms) < 2 or (len(times_ms) <= _MOST_CALLS and _clock() - began < _SECONDS * 1e9):
        torch.cuda.set_stream(stream)  # the candidate may have left another one current
        synchronize()
        _fill(flushed, 42)
        record(start, stream)
        called = _clock()
        output = call()
        returned = _clock()
        record(end, stream)
        synchronize()
        if not times_ms:
            began = _clock()
        times_ms.append(float(elapsed(start, end)))
        hosts_ms.append((returned - called) / 1e6)
    del output
    return {"kernelbench_ms": statistics.fmean(times_ms[1:]), "host_ms": statistics.median(hosts_ms[1:])}
