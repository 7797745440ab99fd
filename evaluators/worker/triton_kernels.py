"""The compiled Triton kernels of a candidate, and their spilled bytes, which the profiler does not report.

For CUDA C++ the builders read those from the report of ptxas (`builds.resources`).
"""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

#: Triton counts spilled registers, of 4 bytes each.
_REGISTER_BYTES = 4
#: The profiler's name of a kernel, registers a thread -> bytes a thread.
Bytes = dict[tuple[str, Any], int]


def triton_spills() -> Bytes:
    """Spilled bytes of the compiled Triton kernels of the candidate's file."""
    found: Bytes = {}
    for kernel in compiled_kernels(sys.modules.get("candidate")):
        name, registers, spills = (getattr(kernel, field, None) for field in ("name", "n_regs", "n_spills"))
        if isinstance(name, str) and isinstance(spills, int):
            found[name, registers] = max(found.get((name, registers), 0), spills * _REGISTER_BYTES)
    return found


def compiled_kernels(module: ModuleType | None) -> Iterator[Any]:
    """The compiled forms of all Triton kernels of a module."""
    for value in list(vars(module).values()) if module is not None else ():
        yield from _compiled(value)


def _compiled(value: Any) -> Iterator[Any]:
    """Compiled forms of a Triton function, through its autotuner and heuristics; none for anything else."""
    for _ in range(4):
        caches = getattr(value, "device_caches", None)
        if isinstance(caches, dict):
            for cache in list(caches.values()):
                kernels = cache[0] if isinstance(cache, tuple) else cache
                yield from list(kernels.values()) if isinstance(kernels, dict) else ()
            return
        value = getattr(value, "fn", None)
