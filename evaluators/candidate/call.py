"""What the judge learns from one call of a kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a kernel."""

    #: Milliseconds that the worker reports for the call.
    ms: float
    #: Milliseconds by the judge's clock from the request to the reply, or until the judge had read the output.
    wall_ms: float
    #: Moment of the request (`time.perf_counter`).
    asked: float
    #: Indices of the inputs that were changed.
    changed_inputs: frozenset[int]
    #: Indices of the outputs that share memory with an input.
    aliases_input: frozenset[int]
    #: What the candidate left changed in its process, by short names (`worker.integrity`).
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """What it costs to launch a call (`worker.launch_cost`): untrusted, for information."""

    #: Milliseconds of the host until the call returns.
    host_ms: float
    #: Milliseconds of the call as KernelBench times it.
    kernelbench_ms: float
