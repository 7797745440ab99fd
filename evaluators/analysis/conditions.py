"""PyTorch's settings while the judge's own process inspects a problem or measures a device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.worker.precision import flags_for


@contextmanager
def judging_conditions(device: Device, precision: str) -> Iterator[None]:
    """The task's backend flags, all threads of the device and no gradients; restores all of them afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(device.threads)
    try:
        with flags_for(precision), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)
