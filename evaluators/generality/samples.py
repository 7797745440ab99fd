"""A problem that is one operator, on PyTorch's samples of this operator.

A sample suits the problem if it is the same call but for its tensors: each tensor argument is one of forward(), or a
weight that `Model` makes of this shape, and each other argument is the reference's own, or one that the constructor of
`Model` takes by name (``dim``, ``eps``, ``normalized_shape``).
"""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import names_of
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.generality.opinfo import OpSample, samples_of
from kbevolve.evaluators.generality.variants import Variant
from kbevolve.evaluators.graph.process import TRACE_SECONDS, traced
from kbevolve.evaluators.graph.records import Argument, Node, Trace, refs
from kbevolve.evaluators.worker.precision import DTYPES

#: Samples on which a kernel is judged, evenly spread over those that suit.
MOST_JUDGED = 40
#: Constants that are equal where the operator has so many axes: -1 is the last one.
_AXES = ("dim",)
_TAIL = """

from kbevolve.evaluators.generality.opinfo import draw_sample


def get_inputs():
    return draw_sample({name!r}, {variant!r}, {number}, {dtype!r}, {places!r})


def get_init_inputs():
    return {arguments!r}
"""


class Unsuitable(Exception):
    """A sample does not suit the problem; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSelection:
    """The samples of a problem's operator."""

    #: e.g. "aten.softmax.int".
    operator: str
    variants: tuple[Variant, ...]
    #: Reason -> how many samples were left out for it.
    skipped: Mapping[str, int]


def select_samples(problem: Problem, device_type: str, precision: str) -> SampleSelection:
    """The samples that suit a problem, each as a problem with the sample's inputs, in the dtype of the task.

    Raises:
        UsageError: the problem is not one operator, PyTorch has no sample of it, or a package is missing.
        UntraceableError: the reference has no graph.
    """
    reference = OneOperator(problem, device_type, precision)
    fitting: list[Variant] = []
    skipped: Counter[str] = Counter()
    for sample in samples_of(reference.node.kind, DTYPES[precision], device_type):
        try:
            fitting.append(reference.variant(sample))
        except Unsuitable as reason:
            skipped[str(reason)] += 1
    if not fitting and not skipped:
        raise UsageError(
            f"{problem.name} is {reference.node.op}, of which PyTorch's OpInfo has no samples at {precision}"
        )
    step = max(1, -(-len(fitting) // MOST_JUDGED))
    if step > 1:
        skipped[f"more than {MOST_JUDGED} suit"] = len(fitting) - len(fitting[::step])
    return SampleSelection(operator=reference.node.op, variants=tuple(fitting[::step]), skipped=dict(skipped))


class OneOperator:
    """A problem whose reference is one operator on the tensors that forward() takes and the weights of `Model`."""

    def __init__(self, problem: Problem, device_type: str, precision: str) -> None:
        """Trace the reference; raises as `select_samples` does."""
        self._problem = problem
        self._source = problem.source_for(device_type)
        self._trace = traced(problem, device_type, precision, seconds=TRACE_SECONDS, disk_cache=DiskCache())
        self.node = _only_node(problem, self._trace)
        self._namespace = names_of(self._source)
        names = list(inspect.signature(self._namespace["Model"].__init__).parameters)[1:]
        #: What `Model` is constructed with, by the names of its constructor.
        self._arguments = dict(zip(names, self._namespace["get_init_inputs"](), strict=False))

    def variant(self, sample: OpSample) -> Variant:
        """The problem with the sample's inputs; Unsuitable if the sample asks for something else."""
        if sample.node is None:
            raise Unsuitable("several operators, or none")
        if sample.node.op != self.node.op:
            raise Unsuitable(f"another operator, {sample.node.op}")
        tensors: dict[str, int] = {}
        arguments = dict(self._arguments)
        for name, own in self.node.arguments.items():
            theirs = sample.node.arguments[name]
            if refs((own,)) or refs((theirs,)):
                for value, place in _paired(name, own, theirs, sample):
                    if tensors.setdefault(value, place) != place:
                        raise Unsuitable(f"{name} is a tensor of its own")
            elif not _same(name, own, theirs, self._rank(sample)):
                if name not in arguments or not _same(name, arguments[name], own, self._rank(sample)):
                    raise Unsuitable(f"{name} is not {own!r}, and Model's constructor does not take it")
                arguments[name] = _alike(name, arguments[name], theirs)
        self._check(sample, tensors, arguments)
        places = [tensors[value] for value in self._trace.inputs]
        drawn = {"name": sample.name, "variant": sample.variant, "number": sample.number, "dtype": sample.dtype}
        text = self._source + _TAIL.format(**drawn, places=places, arguments=list(arguments.values()))
        changed = {name: value for name, value in arguments.items() if value != self._arguments[name]}
        words = [str(tuple(sample.tensors[place].shape)) for place in places]
        words += [f"{name}={value}" for name, value in changed.items()]
        label = f"{sample.name}{'.' if sample.variant else ''}{sample.variant}[{sample.number}]"
        problem = replace(self._problem, name=f"{self._problem.name} on {label}", source=text, cpu_sizes={})
        return Variant(kind=label, words=" ".join(words), problem=problem, sizes={})

    def _rank(self, sample: OpSample) -> int:
        return sample.tensors[0].dim() if sample.tensors else 0

    def _check(self, sample: OpSample, tensors: Mapping[str, int], arguments: Mapping[str, Any]) -> None:
        """Unsuitable unless `Model` has weights of the sample's shapes and runs on its tensors."""
        model_class = self._namespace["Model"]
        inputs = [sample.tensors[tensors[value]] for value in self._trace.inputs]
        weights = {value.removeprefix("self."): place for value, place in tensors.items() if value.startswith("self.")}
        try:
            with torch.device("meta"):
                state = {**dict(model_class(*arguments.values()).state_dict())} if weights else {}
            for name, place in weights.items():
                if state[name].shape != sample.tensors[place].shape:
                    raise Unsuitable("its weights have shapes that Model's constructor does not take by name")
            with torch.no_grad():
                returned = model_class(*arguments.values()).eval()(*(tensor.clone() for tensor in inputs))
        except Unsuitable:
            raise
        except Exception as error:
            raise Unsuitable(f"Model fails on it: {type(error).__name__}") from None
        if not all(tensor.numel() for tensor in (*inputs, returned)):
            raise Unsuitable("a tensor without elements")


def _only_node(problem: Problem, trace: Trace) -> Node:
    named = ", ".join(dict.fromkeys(node.op for node in trace.nodes)) or "none"
    if len(trace.nodes) != 1 or trace.written or len(trace.outputs) != 1:
        raise UsageError(f"{problem.name} is not one operator, but {len(trace.nodes)} ({named}); --opinfo needs one")
    (node,) = trace.nodes
    known = {*trace.inputs, *trace.parameters}
    if trace.outputs[0] != node.outputs[0] or not set(trace.inputs) <= set(node.reads) <= known:
        raise UsageError(f"{problem.name} is not one operator on the tensors that forward() takes, but more: {named}")
    if trace.takes != {"tuple": [{"tensor": index} for index in range(len(trace.inputs))]}:
        raise UsageError(f"{problem.name}: forward() takes more than tensors, one by one; --opinfo has nothing else")
    return node


def _paired(name: str, own: Argument, theirs: Argument, sample: OpSample) -> Iterator[tuple[str, int]]:
    """The reference's values and the places of the sample's tensors that stand for them."""
    values, others = refs((own,)), refs((theirs,))
    if len(values) != len(others):
        raise Unsuitable(f"{name} is a tensor" if others else f"{name} is no tensor")
    for value, other in zip(values, others, strict=True):
        if other not in sample.values:
            raise Unsuitable(f"{name} is a constant tensor")
        yield value, sample.values.index(other)


def _same(name: str, one: Argument, other: Argument, rank: int) -> bool:
    """Whether two constants mean the same; 3 and (3, 3) do, and as axes so do -1 and the last."""
    if name in _AXES and rank:
        one, other = _counted(one, rank), _counted(other, rank)
    if isinstance(other, tuple) and isinstance(one, int | float):
        return set(other) == {one}
    return (tuple(one) if isinstance(one, list) else one) == other


def _alike(name: str, own: Any, theirs: Argument) -> Any:
    """A sample's constant in the form of the reference's own; Unsuitable where the reference has one number.

    In a traced call an option that is not given is (), and one number for all axes is a tuple.
    """
    if theirs == ():
        return None
    if isinstance(theirs, tuple) and isinstance(own, int | float):
        if len(set(theirs)) > 1:
            raise Unsuitable(f"{name} is several numbers")
        return theirs[0]
    return theirs


def _counted(axes: Argument, rank: int) -> Argument:
    """Axes counted from the first one."""
    if isinstance(axes, tuple):
        return tuple(_counted(axis, rank) for axis in axes)
    return axes % rank if isinstance(axes, int) and -rank <= axes < 0 else axes
