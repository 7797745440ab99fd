"""Traits of compiled code, combined from the builders' and the worker's reports."""

from collections.abc import Iterable
from typing import Any

from kbevolve.archive.records import Trait
from kbevolve.evaluators.sandbox.build_protocol import WorkerBuild

Traits = tuple[Trait, ...]


def traits_of(words: Any) -> Traits | None:
    """The traits with these words, in the order of the enum, without unknown words; None when it is no list."""
    if not isinstance(words, list):
        return None
    return tuple(trait for trait in Trait if trait.value in words)


def united(parts: Iterable[Traits | None]) -> Traits | None:
    """The traits of all parts; None where one part is unknown, or there is none.

    The unknown part may have any trait, so the traits of the other parts would describe another kernel.
    """
    known = list(parts)
    if not known or None in known:
        return None
    return tuple(trait for trait in Trait if any(trait in part for part in known if part))


def merged_traits(builds: Iterable[WorkerBuild], reported: Traits | None) -> Traits | None:
    """The traits of a kernel; None when not all that was built is known.

    Args:
        builds: for its worker, `Worker.built`.
        reported: the worker's own report about Triton kernels; None for none.
    """
    built = [build.traits for build in builds if build.library]
    return united(built if reported is None else [*built, reported])
