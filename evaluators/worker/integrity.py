"""State of the process that a candidate must not leave changed, because the next call depends on it.

The worker reports it and the judge decides. A candidate that patches this file gains nothing but silence: the judge's
own clock bounds times, and outputs are compared in the judge.
"""

import threading
from dataclasses import dataclass

import torch

from kbevolve.evaluators.worker.precision import flags_are_set

# Bound before any candidate is imported: patching torch or time later does not change them.
_default_dtype = torch.get_default_dtype
_threads = threading.active_count


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of this process at one moment."""

    function_modes: int
    dispatch_modes: int
    default_dtype: torch.dtype
    threads: int

    @classmethod
    def now(cls) -> "ProcessState":
        """The present state."""
        return cls(
            function_modes=torch._C._len_torch_function_stack(),
            dispatch_modes=torch._C._len_torch_dispatch_stack(),
            default_dtype=_default_dtype(),
            threads=_threads(),
        )

    def changes(self, precision: str) -> list[str]:
        """Short names of what differs now."""
        now = ProcessState.now()
        differences = {
            "torch function mode": now.function_modes != self.function_modes,
            "torch dispatch mode": now.dispatch_modes != self.dispatch_modes,
            "default dtype": now.default_dtype != self.default_dtype,
            "Python threads": now.threads > self.threads,
            "precision flags": not flags_are_set(precision),
        }
        return [name for name, differs in differences.items() if differs]
