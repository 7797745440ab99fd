"""State of the process that a candidate must not leave changed, because the next call depends on it.

The worker reports it and the judge decides. A candidate that patches this file gains nothing but silence: the judge's
own clock bounds times, and outputs are compared in the judge.
"""

import threading
from typing import Any

import torch

from kbevolve.evaluators.worker.modes import modes_are_set
from kbevolve.evaluators.worker.precision import cpu_precisions, flags_are_set

# Bound before any candidate is imported: patching torch or time later does not change them.
_default_dtype = torch.get_default_dtype
_threads = threading.active_count


def process_state() -> dict[str, Any]:
    """The present state by short names."""
    return {
        "torch function mode": torch._C._len_torch_function_stack(),
        "torch dispatch mode": torch._C._len_torch_dispatch_stack(),
        "default dtype": _default_dtype(),
        "Python threads": _threads(),
        "precision flags": cpu_precisions(),
    }


def changes(before: dict[str, Any], precision: str, device: torch.device) -> list[str]:
    """The names of what differs now; fewer threads are no change."""
    now = process_state()
    now["Python threads"] = max(now["Python threads"], before["Python threads"])
    differences = {name: value != before[name] for name, value in now.items()}
    differences["precision flags"] |= not flags_are_set(precision)
    differences["floating-point modes"] = not modes_are_set(device)
    return [name for name, differs in differences.items() if differs]
