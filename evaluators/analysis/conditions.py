"""How the judge's own process runs PyTorch while it looks at a problem or a device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.worker.precision import flags_for


@contextmanager
def as_judged(device: Device, precision: str) -> Iterator[None]:
    """The task's backend flags, all of the device's threads and no gradients; everything as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(device.threads)
    try:
        with flags_for(precision), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)
