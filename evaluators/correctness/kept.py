"""Whether the trials of a problem stay in memory: where all leave enough for the workers and for a truth.

Otherwise they are drawn again from their seeds, and their truths are computed again, for each kernel. A GPU computes a
truth of 9 GB in 20 ms; with the memory of a few truths it can try another kernel meanwhile.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Lock

import torch

from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.inputs import Distribution, nominal
from kbevolve.evaluators.correctness.truth import ExpectedOutput, Scale
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import free_bytes
from kbevolve.evaluators.worker.values import SharedTensor, dtype_named

#: Share of the free memory for inputs and expected outputs of trials.
_SHARE = 2 / 3
#: The reference's worker and those of three kernels, which do not wait for each other where trials are kept. Then the
#: memory of each process without tensors (612 MiB on an H100).
_WORKERS = 4
PROCESS_BYTES = 640 << 20


def room_for_trials(device: Device, *, worker_bytes: int, truth_bytes: int) -> float:
    """Bytes that trials may take now, before any worker has started.

    Args:
        device: which.
        worker_bytes: memory that a worker needs for one kernel of the problem, its process left out.
        truth_bytes: memory in which one truth is computed.
    """
    free = free_bytes(device)
    return max(0.0, min(_SHARE * free, free - _WORKERS * (worker_bytes + PROCESS_BYTES) - truth_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Inputs and the expected output."""

    #: Applied to the inputs that the problem drew.
    transform: Distribution
    inputs: list[torch.Tensor]
    expected: ExpectedOutput
    scale: Scale


def bytes_of(draws: Iterable[Draw], input_bytes: int, outputs: Sequence[SharedTensor]) -> int:
    """Bytes of these trials when they are kept: inputs, the truth in fp64, and the reference's output if `compared`."""
    sizes = [(math.prod(place.shape), dtype_named(place.dtype).itemsize) for place in outputs]
    truth, own = sum(8 * count for count, _ in sizes), sum(count * size for count, size in sizes)
    return sum(input_bytes + truth + own * (draw.transform is nominal) for draw in draws)


class KeptTrials:
    """Inputs and expected outputs of all trials, or only the inputs of the first, on which timing warms up."""

    def __init__(self, room: float, *, needed: int) -> None:
        """`room`: bytes for all of them; `needed`: what they would all take."""
        self._room = room
        self._kept: dict[Draw, tuple[list[torch.Tensor], ExpectedOutput]] = {}
        #: The inputs of the first trial; None where there is no room for them.
        self.first_inputs: list[torch.Tensor] | None = None
        #: Whether all of them fit.
        self.fit = needed <= room
        #: To be entered before the device and a trial: where not all fit, one at a time is in memory.
        self.room_for_one: AbstractContextManager[object] = nullcontext() if self.fit else Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, draw: Draw) -> tuple[list[torch.Tensor], ExpectedOutput] | None:
        """Inputs and expected output of a trial that is kept."""
        return self._kept.get(draw)

    def keep(self, draw: Draw, inputs: list[torch.Tensor], expected: ExpectedOutput) -> None:
        """Keep a trial where all fit; else the inputs of the first, if there is room for them."""
        if self.first_inputs is None and sum(tensor.nbytes for tensor in inputs) <= self._room:
            self.first_inputs = inputs
        if self.fit:
            self._kept[draw] = inputs, expected


def compared(draw: Draw, expected: ExpectedOutput) -> ExpectedOutput:
    """What outputs are compared with: only those on inputs as the problem draws them with the reference's own."""
    return expected if draw.transform is nominal else replace(expected, reference=[])
