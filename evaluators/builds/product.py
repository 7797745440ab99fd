"""The result of a build: a library, or the reason why there is none."""

from dataclasses import asdict, dataclass
from enum import StrEnum

from kbevolve.evaluators.builds.cache import CacheEntry
from kbevolve.evaluators.builds.resources import KernelResources, kernels_of
from kbevolve.evaluators.builds.traits import Traits, traits_of


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


def to_entry(result: BuildResult) -> CacheEntry | None:
    """What the cache keeps of a result; None for a failure of the machine and not of the request."""
    if isinstance(result, BuildFailure):
        return CacheEntry(product=None, record={"log": result.log}) if result.why is FailureReason.ERROR else None
    record = asdict(result)
    return CacheEntry(product=record.pop("library"), record=record)


def from_entry(entry: CacheEntry) -> BuildResult:
    """The result of an entry, for which no compiler ran this time."""
    record = entry.record
    if entry.product is None:
        return BuildFailure(why=FailureReason.ERROR, log=record["log"])
    return BuiltLibrary(
        library=entry.product,
        log=record["log"],
        resources=kernels_of(record["resources"]),
        traits=traits_of(record["traits"]),
        light=tuple(record["light"]),
    )
