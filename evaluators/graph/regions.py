"""Cuts a trace into regions.

Every form that is no pointwise step is a region of its own. Pointwise forms that feed one another, directly or through
views, are one region, unless a path between them leads through another region: then one kernel could not compute
them. Two rules find those without such a path: connected pointwise forms of equal depth, where the depth is the number
of other regions on the longest path to a form; and pointwise forms that only one pointwise region reads. Views belong
to no region: they cost nothing, and an operand names those before it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from kbevolve.evaluators.graph.contraction import contraction_of
from kbevolve.evaluators.graph.families import constants_of, family_of, flops_of, operands_of, spec_of
from kbevolve.evaluators.graph.matching import Form
from kbevolve.evaluators.graph.records import Family, Graph, Operand, Region, Trace
from kbevolve.evaluators.graph.spellings import canonical

#: Regions that read a part of their first operand, at places that are known only when they run.
_GATHERS = ("embedding", "index", "index_select", "gather", "masked_select")


def cut(trace: Trace) -> Graph:
    """The graph of a trace."""
    return _Cut(trace).graph()


class _Cut:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._forms = [form for form in canonical(trace).all() if not form.view]
        self._rank = {id(form): rank for rank, form in enumerate(self._forms)}
        #: Groups of forms, in their order; empty where a later group has taken them in.
        self._groups: list[list[Form]] = []
        self._pointwise: list[bool] = []
        #: Value that is no view -> the group that computes it.
        self._group_of: dict[str, int] = {}
        self._make_groups()
        self._join_single_readers()
        #: Node -> its group; a view between forms has none.
        self._home = {
            node.name: group for group, forms in enumerate(self._groups) for form in forms for node in form.nodes
        }
        self._order = self._ordered()
        self._names = self._named()

    def graph(self) -> Graph:
        return Graph(trace=self._trace, regions=_with_neighbours([self._region(group) for group in self._order]))

    def _make_groups(self) -> None:
        depth: dict[str, int] = {}
        for form in self._forms:
            bases = [base for value in form.reads if (base := self._trace.base(value)[0]) in depth]
            deepest = max((depth[base] for base in bases), default=0)
            pointwise = family_of(form, self._trace) is Family.POINTWISE
            group, members = len(self._groups), [form]
            if pointwise:
                near = {self._group_of[base] for base in bases if depth[base] == deepest}
                for other in sorted(near):
                    if self._pointwise[other]:
                        members = self._groups[other] + members
                        self._groups[other] = []
            self._groups.append(self._sorted(members))
            self._pointwise.append(pointwise)
            for one in members:
                self._group_of |= dict.fromkeys(one.outputs, group)
            depth |= dict.fromkeys(form.outputs, deepest if pointwise else deepest + 1)

    def _join_single_readers(self) -> None:
        """Take pointwise groups into the pointwise group that alone reads them, the last ones first."""
        readers: dict[str, list[Form]] = {}
        for form in self._forms:
            for value in form.reads:
                readers.setdefault(self._trace.base(value)[0], []).append(form)
        for group in reversed(range(len(self._groups))):
            members = self._groups[group]
            values = [value for form in members for value in form.outputs]
            others = {self._group_of[form.outputs[0]] for value in values for form in readers.get(value, ())} - {group}
            if self._pointwise[group] and len(others) == 1 and self._pointwise[reader := others.pop()]:
                self._groups[reader] = self._sorted(members + self._groups[reader])
                self._groups[group] = []
                self._group_of |= dict.fromkeys(values, reader)

    def _sorted(self, forms: Sequence[Form]) -> list[Form]:
        return sorted(forms, key=lambda form: self._rank[id(form)])

    def _ordered(self) -> list[int]:
        """The groups in an order in which they can run."""
        bases = {
            group: {self._trace.base(value)[0] for form in forms for value in form.reads}
            for group, forms in enumerate(self._groups)
            if forms
        }
        needs = {
            group: {self._group_of[base] for base in bases[group] & self._group_of.keys()} - {group} for group in bases
        }
        return list(TopologicalSorter(needs).static_order())

    def _named(self) -> Mapping[int, str]:
        seen: Counter[str] = Counter()
        names = {}
        for group in self._order:
            kind = self._groups[group][0].kind if len(self._groups[group]) == 1 else "pointwise"
            names[group] = f"{kind}_{seen[kind]}" if seen[kind] else kind
            seen[kind] += 1
        return names

    def _region(self, group: int) -> Region:
        trace, forms, name = self._trace, self._groups[group], self._names[group]
        first = forms[0]
        family = family_of(first, trace)
        if len(forms) == 1:
            roles = operands_of(first)
            family = Family.NORM if first.kind == "batch_norm" else family
        else:
            outside = (
                value for form in forms for value in form.reads if self._group_of.get(trace.base(value)[0]) != group
            )
            roles = {str(index): value for index, value in enumerate(dict.fromkeys(outside))}
        operands = tuple(self._operand(role, value) for role, value in roles.items())
        consumers = {value: readers for form in forms for value in form.outputs if (readers := self._readers(value))}
        outputs = tuple(
            Operand(role="output", value=value, spec=trace.tensors[value], source=name) for value in consumers
        )
        written = sum(operand.spec.bytes for operand in outputs)
        # A tensor that two roles read is read once.
        read = {operand.value: operand.spec.bytes for operand in operands}
        if first.kind in _GATHERS:
            read[operands[0].value] = min(operands[0].spec.bytes, written)
        return Region(
            name=name,
            family=family,
            form=" ".join(form.kind for form in forms),
            nodes=tuple(node.name for node in trace.nodes if self._home.get(node.name) == group),
            operands=operands,
            outputs=outputs,
            consumers=consumers,
            constants=constants_of(first, trace) if len(forms) == 1 else {},
            contraction=contraction_of(first, trace) if family is Family.PRODUCT else None,
            flops=flops_of(first, trace),
            bytes_read=sum(read.values()),
            bytes_written=written,
        )

    def _operand(self, role: str, value: str) -> Operand:
        base, views = self._trace.base(value)
        role, spec = spec_of(role, value, self._trace)
        source = self._names[self._group_of[base]] if base in self._group_of else base
        return Operand(role=role, value=value, spec=spec, source=source, views=views)

    def _readers(self, value: str) -> tuple[str, ...]:
        """The other regions that read a value, directly or through views, and "return"."""
        kept = {*self._trace.outputs, *self._trace.written.values()}
        found = ["return"] if value in kept else []
        for node in self._trace.readers[value]:
            if node.name in self._home:
                found.append(self._names[self._home[node.name]])
            else:
                found += [name for view in node.outputs for name in self._readers(view)]
        own = self._names.get(self._group_of.get(self._trace.base(value)[0], -1))
        return tuple(dict.fromkeys(name for name in found if name != own))


def _with_neighbours(regions: Sequence[Region]) -> tuple[Region, ...]:
    """The regions with their prologues and epilogues."""
    readers = {region.name: {name for names in region.consumers.values() for name in names} for region in regions}
    pointwise = {region.name for region in regions if region.family is Family.POINTWISE or region.form == "batch_norm"}
    return tuple(
        replace(
            region,
            prologue=tuple(
                name
                for name in dict.fromkeys(operand.source for operand in region.operands)
                if name in pointwise and readers[name] == {region.name}
            ),
            epilogue=tuple(readers[region.name] & pointwise) if len(readers[region.name]) == 1 else (),
        )
        for region in regions
    )
