"""What a candidate may not leave changed behind it: the numbers and names that the next call depends on.

The worker tells, and the judge decides. A candidate that patches this file away gains nothing but silence: times are
bounded by the judge's own clock, and outputs are compared in the judge.
"""

import threading
from dataclasses import dataclass

import torch

from kbevolve.evaluators.worker.precision import flags_are_set

_default_dtype = torch.get_default_dtype
_threads = threading.active_count


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of this process before the candidate was imported."""

    function_modes: int
    dispatch_modes: int
    default_dtype: torch.dtype
    threads: int

    @classmethod
    def taken(cls) -> "ProcessState":
        """The present state."""
        return cls(
            function_modes=_function_modes(),
            dispatch_modes=_dispatch_modes(),
            default_dtype=_default_dtype(),
            threads=_threads(),
        )

    def changes(self, precision: str) -> list[str]:
        """What differs now, by short names; empty when nothing does."""
        now = ProcessState.taken()
        found = [
            name
            for name, differs in (
                ("torch function mode", now.function_modes != self.function_modes),
                ("torch dispatch mode", now.dispatch_modes != self.dispatch_modes),
                ("default dtype", now.default_dtype != self.default_dtype),
                ("Python threads", now.threads > self.threads),
            )
            if differs
        ]
        if not flags_are_set(precision):
            found.append("precision flags")
        return found


def _function_modes() -> int:
    count: int = torch._C._len_torch_function_stack()
    return count


def _dispatch_modes() -> int:
    count: int = torch._C._len_torch_dispatch_stack()
    return count
