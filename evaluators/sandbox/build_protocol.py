"""A build between worker and judge: what compilers made, who asks for it, and how the library reaches the worker.

The worker receives the library as a descriptor of a sealed copy in memory. It receives no path, because a worker could
redirect one. Nothing that the worker does to its copy changes what the builder keeps.
"""

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kbevolve.archive.records import Trait
from kbevolve.evaluators.worker.channel import Message


class BuildRefused(Exception):
    """The values are no valid request, or only the worker itself can build it."""


class FailureReason(StrEnum):
    """Why nothing was built. Only `ERROR` is a property of the request, and is kept."""

    ERROR = "error"
    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """One CUDA kernel, as compiled for one architecture."""

    #: Mangled.
    name: str
    #: Registers a thread.
    registers: int
    #: Bytes a thread: its stack, and what was spilled into and read back from it.
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    #: Bytes a block, without dynamic shared memory.
    shared_memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """What compilers made of one source or of one extension."""

    #: The object or library; None for a failure.
    product: bytes | None
    #: What the compilers printed.
    log: str = ""
    #: Why there is no product.
    why: FailureReason = FailureReason.ERROR
    resources: tuple[KernelResources, ...] = ()
    #: What its code shows; None where it could not be disassembled.
    traits: tuple[Trait, ...] | None = None
    #: Wall seconds of the compilers; 0 when it had been built before.
    seconds: float = 0.0
    #: Sources that were compiled with lighter headers than torch's own.
    light: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBuild:
    """One build for a worker."""

    #: As the worker sent it.
    request: Message
    result: BuildResult


class Builder(Protocol):
    """Builds what workers request."""

    def __call__(self, request: Message, *, seconds: float) -> Future[BuildResult]:
        """Begin to build; the request is unchecked, and compilers may take so many seconds.

        Raises:
            BuildRefused: the worker must compile by itself. The future may raise it, too.
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
