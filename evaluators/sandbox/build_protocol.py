"""A build between worker and judge: what compilers made, who asks for it, and how the library reaches the worker.

The worker receives the library as a descriptor of a sealed copy in memory. It receives no path, because a worker could
redirect one. Nothing that the worker does to its copy changes what the builder keeps.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kbevolve.archive.records import Trait
from kbevolve.evaluators.sandbox.product import imports_of, product_hash
from kbevolve.evaluators.worker.channel import Message

#: What is remembered of a request, whose size is bounded when it was built.
_REMEMBERED = ("name", "sources", "files", "cflags", "cuda_cflags", "ldflags", "include_paths")


class BuildRefused(Exception):
    """The judge does not build this, and the kernel must not either; the message says why."""


class BuilderUnavailable(Exception):
    """Only the worker itself, with a candidate's rights, can build it."""


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
    #: Digests of all files that its compilers read, by path; None where that is unknown, and it is not kept.
    reads: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBuild:
    """What the judge remembers of one build for a worker: all but the library, which may be large."""

    #: What decides about the library, as the worker sent it and the judge has checked it; empty for a failure.
    request: Message
    #: SHA-256 of the library without nvcc's number; "" for a failure.
    library: str
    #: Of compiling; 0 if the library was known.
    seconds: float
    resources: tuple[KernelResources, ...] = ()
    #: Operations of torch and functions of other libraries that it imports.
    imports: tuple[str, ...] = ()
    #: What its code shows; None where it could not be disassembled.
    traits: tuple[Trait, ...] | None = None

    @classmethod
    def of(cls, request: Message, result: BuildResult) -> "WorkerBuild":
        """The memory of a build."""
        library = "" if result.product is None else product_hash(result.product)
        return cls(
            request={name: request.get(name) for name in _REMEMBERED} if library else {},
            library=library,
            seconds=result.seconds,
            resources=result.resources,
            traits=result.traits,
            imports=imports_of(result.product or b""),
        )


class Builder(Protocol):
    """Builds what workers request."""

    def __call__(self, request: Message, *, seconds: float) -> Future[BuildResult]:
        """Begin to build; the request is unchecked, and compilers may take so many seconds.

        Raises:
            BuildRefused: it must not be built.
            BuilderUnavailable: the worker must compile by itself. The future may raise both, too.
        """


def is_known(future: Future[BuildResult]) -> bool:
    """Whether nothing has to be compiled for a result."""
    return future.done() and not future.cancelled() and future.exception() is None


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
