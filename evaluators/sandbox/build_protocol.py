"""The messages between judge and worker about a build: who compiles, and how the library reaches the worker.

The worker receives the library as a descriptor of a sealed copy in memory. It receives no path, because a worker could
redirect one. Nothing that the worker does to its copy changes what the builder keeps.
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
    """The judge's answer to a worker that wants to build."""

    #: ``{"built": {…}}``, ``{"failed": log}``, ``{"compile": true}`` (compile yourself) or ``{"continue": true}``.
    message: Message
    #: The library (or program) that was built.
    library: bytes | None = None
    #: What its machine code shows; None where it could not be disassembled.
    traits: tuple[Trait, ...] | None = None
    #: The build request as the worker sent it; None when the reply answers no request.
    request: Message | None = None
    #: Seconds that compilers took; 0 when it had been built before.
    seconds: float = 0.0
    #: Whether its time ran out.
    timed_out: bool = False


class Builder(Protocol):
    """Builds what workers request."""

    def __call__(self, request: Message, *, seconds: float) -> Future[BuildReply] | None:
        """Begin to build; None for a request that is not accepted.

        Args:
            request: from an untrusted process, unchecked.
            seconds: that compilers may take.
        """


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """A descriptor of these bytes, at their beginning. No process can change them any more."""
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
