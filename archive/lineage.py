"""The ancestors of a kernel within one run, as a pure function of the run's births."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kbevolve.archive.records import Birth


class Descendant(Protocol):
    """What a line of descent is made of: a `Birth`, or an entry of an outline."""

    @property
    def kernel(self) -> str | None:
        """Kernel id, None without a kernel."""

    @property
    def parents(self) -> tuple[str, ...]:
        """Kernel ids, the main parent first."""


AnyDescendant = TypeVar("AnyDescendant", bound=Descendant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """One step of a line of descent."""

    #: The first birth of the kernel in the run.
    birth: Birth
    #: Lines of the other parents (a crossing has two), each back to the first kernel that is shown already; empty for a
    #: child of one parent.
    branches: tuple["Line", ...] = ()
    #: Other parents that are shown elsewhere in the lineage.
    met: tuple[str, ...] = ()


#: A kernel, its main parent, that one's main parent, … back to a starting kernel.
Line = tuple[Ancestor, ...]


def first_births(births: Iterable[AnyDescendant]) -> dict[str, AnyDescendant]:
    """Kernel id to its first birth: a later duplicate does not change the ancestors."""
    first: dict[str, AnyDescendant] = {}
    for birth in births:
        if birth.kernel is not None:
            first.setdefault(birth.kernel, birth)
    return first


def lineage(kernel: str, births: Iterable[Birth]) -> Line:
    """The line of main parents of a kernel, with the lines of other parents as branches.

    Every ancestor is shown once, the main line first; a full tree would grow exponentially with crossings.

    The births are those of the run in order. The line is empty without a birth of the kernel.
    """
    first = first_births(births)
    return _line(kernel, first, set())


def main_line(kernel: str, births: Iterable[AnyDescendant]) -> tuple[AnyDescendant, ...]:
    """The births of a kernel, its main parent, and so on back to a starting kernel; newest first."""
    return tuple(_mains(kernel, first_births(births), set()))


def _line(kernel: str, first: Mapping[str, Birth], shown: set[str]) -> Line:
    # The whole main line is taken before any branch is followed, so that branches end where they meet it.
    trunk = list(_mains(kernel, first, shown))
    line = []
    for birth in trunk:
        branches, met = [], []
        for parent in birth.parents[1:]:
            branch = _line(parent, first, shown)
            if branch:
                branches.append(branch)
            else:
                met.append(parent)
        line.append(Ancestor(birth=birth, branches=tuple(branches), met=tuple(met)))
    return tuple(line)


def _mains(kernel: str, first: Mapping[str, AnyDescendant], shown: set[str]) -> Iterator[AnyDescendant]:
    following = kernel
    while following in first and following not in shown:
        shown.add(following)
        birth = first[following]
        yield birth
        following = birth.parents[0] if birth.parents else ""
