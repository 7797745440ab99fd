"""The result of a build: a library, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kbevolve.evaluators.builds.cache import CacheEntry
from kbevolve.evaluators.builds.resources import KernelResources
from kbevolve.evaluators.builds.traits import Traits, traits_of, words_for


class FailureReason(StrEnum):
    """Why nothing was built. Only `ERROR` is a property of the request, and is kept."""

    ERROR = "error"
    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """A library or program."""

    library: bytes
    #: Warnings of the compilers.
    log: str = ""
    #: Of its CUDA kernels.
    resources: tuple[KernelResources, ...] = ()
    #: Of its machine code; None without a disassembler.
    traits: Traits | None = None
    #: Wall seconds of the compilers; 0 when it had been built before.
    seconds: float = 0.0
    #: Sources that were compiled with lighter headers than torch's own.
    light: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailure:
    """No library."""

    why: FailureReason
    #: What the compiler printed.
    log: str
    #: Wall seconds of the compilers; 0 when it was known before.
    seconds: float = 0.0


BuildResult = BuiltLibrary | BuildFailure


def to_plain(result: BuildResult) -> dict[str, Any]:
    """Plain values, with the library as bytes: what is sent to another host."""
    if isinstance(result, BuildFailure):
        return {"library": None, "why": result.why.value, "log": result.log, "seconds": result.seconds}
    return {
        "library": result.library,
        "log": result.log,
        "resources": [kernel.to_json() for kernel in result.resources],
        "traits": words_for(result.traits),
        "seconds": result.seconds,
        "light": list(result.light),
    }


def from_plain(tree: Mapping[str, Any]) -> BuildResult:
    """The inverse of `to_plain`."""
    if tree["library"] is None:
        return BuildFailure(why=FailureReason(tree["why"]), log=tree["log"], seconds=tree["seconds"])
    return BuiltLibrary(
        library=tree["library"],
        log=tree["log"],
        resources=tuple(KernelResources.from_json(kernel) for kernel in tree["resources"]),
        traits=traits_of(tree["traits"]),
        seconds=tree["seconds"],
        light=tuple(tree["light"]),
    )


def to_entry(result: BuildResult) -> CacheEntry | None:
    """What the cache keeps of a result; None for a failure of the machine and not of the request."""
    if isinstance(result, BuildFailure) and result.why is not FailureReason.ERROR:
        return None
    record = to_plain(result)
    return CacheEntry(product=record.pop("library"), record=record)


def from_entry(entry: CacheEntry) -> BuildResult:
    """The result of an entry, for which no compiler ran this time."""
    return from_plain({**entry.record, "library": entry.product, "seconds": 0.0})
