"""What comes of an order: the library, or why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kbevolve.evaluators.builds.cache import CacheEntry
from kbevolve.evaluators.builds.resources import KernelResources
from kbevolve.evaluators.builds.traits import Traits, traits_of, words_for


class FailureReason(StrEnum):
    """Why nothing was built; only the first is a property of the order, and remembered."""

    ERROR = "error"
    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltLibrary:
    """A library or program."""

    library: bytes
    #: Compilers' warnings.
    log: str = ""
    #: Of the CUDA kernels in it.
    resources: tuple[KernelResources, ...] = ()
    #: What shows in its machine code; None where no disassembler is.
    traits: Traits | None = None
    #: Seconds on the wall that compilers took for it; 0 when it was there already.
    seconds: float = 0.0
    #: Sources that were compiled with lighter headers than torch's own.
    light: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailure:
    """No library."""

    why: FailureReason
    #: What the compiler said.
    log: str
    #: Seconds on the wall that compilers took; 0 when it was known already.
    seconds: float = 0.0


BuildResult = BuiltLibrary | BuildFailure


def to_plain(outcome: BuildResult) -> dict[str, Any]:
    """Plain values, the library as bytes: what goes to another host."""
    if isinstance(outcome, BuildFailure):
        return {"library": None, "why": outcome.why.value, "log": outcome.log, "seconds": outcome.seconds}
    return {
        "library": outcome.library,
        "log": outcome.log,
        "resources": [kernel.to_json() for kernel in outcome.resources],
        "traits": words_for(outcome.traits),
        "seconds": outcome.seconds,
        "light": list(outcome.light),
    }


def from_plain(tree: Mapping[str, Any]) -> BuildResult:
    """Back from `to_plain`."""
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


def to_entry(outcome: BuildResult) -> CacheEntry | None:
    """What is kept of an outcome; None for one that says nothing about the order, but of the machine."""
    if isinstance(outcome, BuildFailure) and outcome.why is not FailureReason.ERROR:
        return None
    record = to_plain(outcome)
    return CacheEntry(product=record.pop("library"), record=record)


def from_entry(entry: CacheEntry) -> BuildResult:
    """The outcome that an entry was made of, for which no compiler ran this time."""
    return from_plain({**entry.record, "library": entry.product, "seconds": 0.0})
