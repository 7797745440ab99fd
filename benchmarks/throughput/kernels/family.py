"""The children of one problem, made from plans."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from benchmarks.throughput.child import Child, Fate, Kind, edited, verdict_of
from benchmarks.throughput.shells import Interface, fast_lane, inline
from kbevolve.archive.records import Verdict


class Plan(NamedTuple):
    """One child before it has a file around its code."""

    kind: Kind
    fate: Fate
    summary: str
    #: Device code for the two lanes of CUDA and C++, else the whole file with ``@TITLE@`` in it.
    code: str
    #: By which verdict a failing child fails.
    failure: Verdict | None = None
    #: Pieces of the file that are replaced after all, for what is not device code.
    changes: tuple[tuple[str, str], ...] = ()
    #: Another entry function on tensors, for a child that is not only device code.
    entry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All children of one problem."""

    problem: str
    #: Stem of their names.
    label: str
    interface: Interface
    plans: tuple[Plan, ...]
    #: Whether the device code is CUDA.
    cuda: bool = True

    def children(self) -> Iterator[Child]:
        """In the order of the plans, named e.g. ``matmul-fast-1``."""
        counts: Counter[str] = Counter()
        for plan in self.plans:
            stem = f"{self.label}-{plan.kind.value.partition(' ')[0].removeprefix('load_')}"
            counts[stem] += 1
            name = f"{stem}-{counts[stem]}"
            yield Child(
                name=name,
                problem=self.problem,
                kind=plan.kind,
                fate=plan.fate,
                summary=plan.summary,
                verdict=verdict_of(plan.fate, plan.failure),
                source=self._source(plan, name.replace("-", "_")),
            )

    def _source(self, plan: Plan, name: str) -> str:
        # The title says what the child is meant to be, as a model would write it, and not what is wrong with it.
        title = f"{self.problem}: a kernel in {plan.kind.value}."
        interface = self.interface if plan.entry is None else replace(self.interface, entry=plan.entry)
        match plan.kind:
            case Kind.FAST:
                source = fast_lane(interface, plan.code, name=name, title=title, cuda=self.cuda)
            case Kind.INLINE:
                source = inline(interface, plan.code, name=name, title=title, cuda=self.cuda)
            case _:
                source = plan.code.replace("@TITLE@", title)
        return edited(source, *plan.changes)
