"""Locks on a device among all kbevolve processes of this machine: held exclusively to time, shared to try."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TextIO

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device

#: Between two looks of a waiting thread at whether it is still to wait.
_LOOK_SECONDS = 0.1


@contextmanager
def exclusive(device: Device, ended: Event | None = None) -> Iterator[None]:
    """Hold the device alone.

    Args:
        device: the device.
        ended: once it is set, no thread waits any more.

    Raises:
        EvaluatorError: `ended` was set before the device was free.
    """
    with ExitStack() as entry:
        # While one process waits for the exclusive lock, no other may take a shared one: it could wait for ever.
        entry.enter_context(_locked(device, "turn", fcntl.LOCK_EX, ended))
        with _locked(device, "use", fcntl.LOCK_EX, ended):
            entry.close()
            yield


@contextmanager
def shared(device: Device, ended: Event | None = None) -> Iterator[None]:
    """Hold the device together with other processes, while none holds it alone. As `exclusive`."""
    with _locked(device, "turn", fcntl.LOCK_EX, ended):
        pass
    with _locked(device, "use", fcntl.LOCK_SH, ended):
        yield


@contextmanager
def shared_again(device: Device) -> Iterator[None]:
    """A second shared lock, without waiting. Enter it inside `shared`; it may outlast it."""
    with _locked(device, "use", fcntl.LOCK_SH):
        yield


def is_taken(device: Device) -> bool:
    """Whether a process holds the device alone."""
    try:
        with _locked(device, "use", fcntl.LOCK_SH | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True


def is_wanted(device: Device) -> bool:
    """Whether a process waits to hold the device alone; asked by one that shares it and can leave it at any moment."""
    try:
        with _locked(device, "turn", fcntl.LOCK_SH | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True


@contextmanager
def _locked(device: Device, name: str, operation: int, ended: Event | None = None) -> Iterator[None]:
    digest = hashlib.sha256(f"{device.type}:{_card(device)}".encode()).hexdigest()[:12]
    path = Path(tempfile.gettempdir()) / f"kbevolve-{os.getuid()}-{digest}-{name}.lock"
    with path.open("w") as file:
        if ended is None:
            fcntl.flock(file, operation)
        else:
            _wait(file, operation, ended)
        yield


def _wait(file: TextIO, operation: int, ended: Event) -> None:
    """Lock a file, or raise EvaluatorError when `ended` is set.

    A thread of its own waits, because the system lets processes in by turns only if they wait in its call. The lock
    belongs to the open file, of which the thread has a descriptor of its own: a lock that comes too late ends with it.
    """
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        pass
    locked, own = Event(), os.dup(file.fileno())

    def wait() -> None:
        fcntl.flock(own, operation)
        os.close(own)
        locked.set()

    Thread(target=wait, name="kbevolve-device-lock", daemon=True).start()
    while not locked.wait(_LOOK_SECONDS):
        if ended.is_set():
            raise EvaluatorError("the judge was closed while another process measured on the device")


def _card(device: Device) -> str:
    """Names the card whatever its index in this process is."""
    if device.type == "cpu":
        return ""
    import torch

    return str(getattr(torch.cuda.get_device_properties(device.index), "uuid", device.index))
