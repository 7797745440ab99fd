"""What judge and worker agree on when something is to be compiled: who builds, and how the product changes hands.

The product goes to the worker as a descriptor of a sealed copy in memory. No path is agreed on, since the worker could
lead one elsewhere, and nothing the worker does to its copy reaches what the builder keeps.
"""

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kbevolve.archive.records import Trait
from kbevolve.evaluators.worker.channel import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """The judge's answer to "I am building"."""

    #: ``{"built": {…}}``, ``{"failed": log}``, ``{"compile": true}`` (by yourself) or ``{"go": true}``.
    message: Message
    #: The library (or program) that was built.
    library: bytes | None = None
    #: What shows in its machine code; None where nobody could look into it.
    traits: tuple[Trait, ...] | None = None
    #: What was ordered, as the worker told it; None for an answer to no order.
    order: Message | None = None
    #: Seconds of compilers that were spent on it; 0 when it had been built before.
    seconds: float = 0.0
    #: Whether its time was over before it was done.
    timed_out: bool = False


class Builder(Protocol):
    """Carries out orders of workers."""

    def __call__(self, order: Message, *, seconds: float) -> Future[BuildReply] | None:
        """Begin to build what an untrusted process ordered; None for an order that is not taken.

        Args:
            order: as it came, nothing of it checked.
            seconds: that compilers may take.
        """


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """A descriptor of these bytes which nobody can change any more, at its beginning."""
    descriptor = os.memfd_create("kbevolve-built", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)
