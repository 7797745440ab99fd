"""Where a call's time goes: kernels as CUPTI recorded them on a GPU, torch's operations on a CPU.

The candidate shares this process, so a profile is advice for the next attempt and never evidence.
"""

import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile as profiler
from torch.autograd.profiler import record_function

from kbevolve.evaluators.worker.ptx import compiled_kernels

#: Seconds of profiled calls, and most calls: the share of each kernel is stable long before that.
_SECONDS = 0.2
_MOST_CALLS = 10
#: Most entries, the longest first. The judge counts the launches of all, and keeps the first few.
_MOST_ENTRIES = 200
#: Most operations in a report.
_MOST_OPERATIONS = 1000
#: How the names of torch's operations begin.
_OWN = "aten::"
#: Characters of a name; a template's arguments can fill pages.
_MOST_NAME = 300
#: Triton counts spilled registers, of 4 bytes each.
_REGISTER_BYTES = 4
#: CPU time outside of torch's operations: the candidate's own compiled code, and Python.
OWN_CODE = "own code"
#: Categories of the trace that use the device.
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")

Entry = dict[str, Any]


def profile(call: Callable[[], Any]) -> list[Entry]:
    """Entries of one call, the longest first.

    Args:
        call: runs the kernel once; it must have run before, so that nothing compiles in it.

    Returns:
        Plain dictionaries: ``name``, ``microseconds`` (of all its launches in one call) and ``launches`` (a call); on
        CUDA also ``registers`` (a thread), ``spilled`` (bytes a thread), ``shared_memory`` (bytes a block),
        ``occupancy`` (0 to 1), ``blocks_per_sm``, ``blocks`` (of a launch) and ``threads`` (of a block) where they are
        known.
    """
    cuda = torch.cuda.is_available()
    calls = _how_many(call)
    # Not `torch.profiler.profile`, which imports TorchInductor at its first use and takes 4 s.
    device = "cuda" if cuda else None
    with profiler(use_cpu=not cuda, use_device=device, use_kineto=True, acc_events=True) as session:
        for _ in range(calls):
            if cuda:
                call()
            else:
                with record_function(OWN_CODE):
                    call()
        if cuda:
            torch.cuda.synchronize()
    entries = _launches(_trace(session), calls) if cuda else _operations(session, calls)
    entries.sort(key=lambda entry: -entry["microseconds"])
    return entries[:_MOST_ENTRIES]


def operations(call: Callable[[], Any]) -> list[str]:
    """The names of torch's operations that a call runs, in any thread, and of all launches on a GPU.

    An operation inside another one of torch is left out: a product of two matrices copies and transposes.
    """
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    device = "cuda" if torch.cuda.is_available() else None
    with profiler(use_cpu=True, use_device=device, use_kineto=True, experimental_config=everywhere) as session:
        call()
        if device:
            torch.cuda.synchronize()
    events = session.function_events or []
    outermost = {event.name for event in events if not (event.cpu_parent and event.cpu_parent.name.startswith(_OWN))}
    return sorted(name[:_MOST_NAME] for name in outermost)[:_MOST_OPERATIONS]


def _how_many(call: Callable[[], Any]) -> int:
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return min(_MOST_CALLS, max(1, int(_SECONDS / max(time.perf_counter() - start, 1e-6))))


def _trace(session: Any) -> list[Entry]:
    """The events of the exported trace. torch's own tables leave out registers and shared memory."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        session.export_chrome_trace(str(path))
        events: list[Entry] = json.loads(path.read_text())["traceEvents"]
    return events


def _launches(events: Sequence[Entry], calls: int) -> list[Entry]:
    """Kernels, copies and fills on the device, summed by name, registers and shape of the launch."""
    groups: dict[tuple[Any, ...], list[Entry]] = defaultdict(list)
    for event in events:
        if event.get("cat") in _DEVICE_WORK:
            facts = event.get("args", {})
            shape = (tuple(facts.get(name, ())) for name in ("grid", "block"))
            groups[event["name"], facts.get("registers per thread"), *shape].append(event)
    spilled = _triton_spills()
    entries = []
    for (name, registers, grid, block), found in groups.items():
        facts = found[0].get("args", {})
        entry = {
            "name": name[:_MOST_NAME],
            "microseconds": sum(event["dur"] for event in found) / calls,
            "launches": len(found) / calls,
            "registers": registers,
            "spilled": spilled.get((name, registers)),
            "shared_memory": facts.get("shared memory"),
            "blocks_per_sm": facts.get("blocks per SM"),
            "blocks": math.prod(grid) if grid else None,
            "threads": math.prod(block) if block else None,
        }
        occupancy = facts.get("est. achieved occupancy %")
        if occupancy:  # 0 for a launch that it could not estimate
            entry["occupancy"] = occupancy / 100
        entries.append({field: value for field, value in entry.items() if value is not None})
    return entries


def _triton_spills() -> dict[tuple[str, Any], int]:
    """The profiler's name of a Triton kernel and its registers a thread -> spilled bytes a thread.

    The profiler does not report them. For CUDA C++ the builders read them from the report of ptxas.
    """
    found: dict[tuple[str, Any], int] = {}
    for kernel in compiled_kernels(sys.modules.get("candidate")):
        name, registers, spills = (getattr(kernel, field, None) for field in ("name", "n_regs", "n_spills"))
        if isinstance(name, str) and isinstance(spills, int):
            found[name, registers] = max(found.get((name, registers), 0), spills * _REGISTER_BYTES)
    return found


def _operations(session: Any, calls: int) -> list[Entry]:
    """torch's operations with their own time, and the rest as `OWN_CODE`."""
    return [
        {
            "name": row.key[:_MOST_NAME],
            "microseconds": row.self_cpu_time_total / calls,
            "launches": row.count / calls,
        }
        for row in session.key_averages()
        if row.self_cpu_time_total > 0
    ]
