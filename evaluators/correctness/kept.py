"""Which trials of a problem stay in memory: those that leave enough for the workers and for the computation of a truth.

The others are drawn again from their seeds, and their truth is computed again, for each kernel.
"""

from dataclasses import dataclass, replace

import torch

from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.inputs import Distribution, nominal
from kbevolve.evaluators.correctness.truth import ExpectedOutput, Scale
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import free_bytes

#: Share of the free memory for inputs and expected outputs of trials.
_SHARE = 1 / 3
#: The reference's worker and one kernel's, and the memory of each process without tensors.
_WORKERS = 2
PROCESS_BYTES = 1 << 30


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


class KeptTrials:
    """Inputs and expected outputs of the trials that fit."""

    def __init__(self, room: float, *, needed: int) -> None:
        """`room`: bytes for all of them; `needed`: what they would all take."""
        self._room = room
        self._kept: dict[Draw, tuple[list[torch.Tensor] | None, ExpectedOutput]] = {}
        #: Whether all of them fit as they are.
        self.fit = needed <= room

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, draw: Draw) -> tuple[list[torch.Tensor] | None, ExpectedOutput | None]:
        """Inputs and expected output of a trial; None for what is not kept."""
        return self._kept.get(draw, (None, None))

    def keep(self, draw: Draw, inputs: list[torch.Tensor], expected: ExpectedOutput) -> None:
        """Keep a trial, if there is room; the inputs only of the first one, which timing warms up with, or of all."""
        parts = [*expected.truth, *expected.reference, *(expected.independent or [])]
        kept = None if self._kept and not self.fit else inputs
        size = sum(tensor.nbytes for tensor in (*parts, *(kept or ())))
        if size <= self._room:
            self._room -= size
            self._kept[draw] = kept, expected


def compared(draw: Draw, expected: ExpectedOutput) -> ExpectedOutput:
    """What outputs are compared with: only those on inputs as the problem draws them with the reference's own."""
    return expected if draw.transform is nominal else replace(expected, reference=[])
