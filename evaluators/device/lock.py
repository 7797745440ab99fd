"""Locks on a device among all kbevolve processes of this machine: held exclusively to time, shared to try."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kbevolve.evaluators.device.devices import Device


@contextmanager
def exclusive(device: Device) -> Iterator[None]:
    """Hold the device alone."""
    with ExitStack() as entry:
        # While one process waits for the exclusive lock, no other may take a shared one: it could wait for ever.
        entry.enter_context(_locked(device, "turn", fcntl.LOCK_EX))
        with _locked(device, "use", fcntl.LOCK_EX):
            entry.close()
            yield


@contextmanager
def shared(device: Device) -> Iterator[None]:
    """Hold the device together with other processes, while none holds it alone."""
    with _locked(device, "turn", fcntl.LOCK_EX):
        pass
    with shared_again(device):
        yield


@contextmanager
def shared_again(device: Device) -> Iterator[None]:
    """A second shared lock, without waiting. Enter it inside `shared`; it may outlast it."""
    with _locked(device, "use", fcntl.LOCK_SH):
        yield


def is_wanted(device: Device) -> bool:
    """Whether a process waits to hold the device alone; asked by one that shares it and can leave it at any moment."""
    try:
        with _locked(device, "turn", fcntl.LOCK_SH | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True


@contextmanager
def _locked(device: Device, name: str, operation: int) -> Iterator[None]:
    digest = hashlib.sha256(f"{device.type}:{_card(device)}".encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"kbevolve-{os.getuid()}-{digest}-{name}.lock"
    with path.open("w") as file:
        fcntl.flock(file, operation)
        yield


def _card(device: Device) -> str:
    """Names the card whatever its index in this process is."""
    if device.type == "cpu":
        return ""
    import torch

    return str(getattr(torch.cuda.get_device_properties(device.index), "uuid", device.index))
