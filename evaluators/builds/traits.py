"""What shows in compiled code, put together from all who could look: our builders, and the worker."""

from collections.abc import Iterable
from typing import Any

from kbevolve.archive.records import Trait
from kbevolve.evaluators.sandbox.build_protocol import BuildReply

Traits = tuple[Trait, ...]


def traits_of(words: Any) -> Traits | None:
    """The traits of these words, in the order of the enum. Words that nobody knows are left out; None for no list."""
    if not isinstance(words, list):
        return None
    return tuple(trait for trait in Trait if trait.value in words)


def words_for(traits: Traits | None) -> list[str] | None:
    """Plain words, which `traits_of` reads."""
    return None if traits is None else [trait.value for trait in traits]


def united(parts: Iterable[Traits | None]) -> Traits | None:
    """What shows in any of them; None where one could not be looked into, or there is none.

    What stands in the part that nobody saw could be anything, so an incomplete picture would refute what is there.
    """
    seen: set[Trait] = set()
    looked = False
    for part in parts:
        if part is None:
            return None
        looked = True
        seen.update(part)
    return tuple(trait for trait in Trait if trait in seen) if looked else None


def merged_traits(replies: Iterable[BuildReply], told: Traits | None) -> Traits | None:
    """What shows in a kernel.

    Args:
        replies: of our builders to its worker, `Worker.built`.
        told: what its worker said of Triton kernels; None for none.

    Returns:
        None when nobody could look, or not into all that was built.
    """
    built = [reply.traits for reply in replies if "failed" not in reply.message]
    return united(built if told is None else [*built, told])
