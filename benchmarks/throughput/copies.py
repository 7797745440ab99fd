"""The mix's children over and over: every copy is a child of its own, for its hash and its build are new."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.throughput.child import Child, Kind

#: Children with code for a compiler get a comment that the compiler reads; others get a statement at their end.
_COMPILED = (Kind.FAST, Kind.INLINE)
_CODE = 'r"""\n'
#: Between a child's name and the number of a copy.
_COPY = "-copy-"


def copies(mix: Sequence[Child], count: int) -> list[Child]:
    """All children `count` times, the kinds mixed as in one pass; the first time as they are."""
    return [_copy(child, number) if number else child for number in range(count) for child in mix]


def original(name: str) -> str:
    """The name of the child that a copy was made of."""
    return name.partition(_COPY)[0]


def _copy(child: Child, number: int) -> Child:
    if child.kind in _COMPILED:
        source = child.source.replace(_CODE, f"{_CODE}// copy {number}\n", 1)
    else:
        source = f"{child.source}\nCOPY = {number}\n"
    return replace(child, name=f"{child.name}{_COPY}{number}", source=source)
