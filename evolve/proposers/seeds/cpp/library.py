"""Python that computes nodes of a graph with torch's own operators, and names its values."""

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Any

from kbevolve.evaluators.graph.records import Argument, Graph, Node, Ref, TorchConstant

#: Names that a file of ours has for other things.
_TAKEN = {"self", "torch", "launch", "build", "nn"}


class Names:
    """Names of a graph's values in the `forward` of a file."""

    def __init__(self, graph: Graph, arguments: Sequence[str]) -> None:
        """Prepare for a graph whose model's forward() has these arguments.

        Raises:
            KeyError: forward() takes its tensors in another form.
        """
        self._graph = graph
        places = _places(graph.trace.takes, arguments)
        self._inputs = {value: places[index] for index, value in enumerate(graph.trace.inputs)}
        self._taken = {*_TAKEN, *arguments}

    def __getitem__(self, value: str) -> str:
        """The Python expression of a value: an argument, an attribute, or a variable."""
        if value in self._inputs:
            return self._inputs[value]
        if value.startswith("self."):
            return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", value)
        name = re.sub(r"\W+", "_", value).strip("_")
        clashes = keyword.iskeyword(name) or name in self._taken or name[0].isdigit()
        return f"{name}_" if clashes else name

    def call(self, node: Node) -> str:
        """A statement that computes a node."""
        arguments = {name: self._argument(argument) for name, argument in node.arguments.items()}
        targets = ", ".join(self[value] for value in node.outputs)
        if node.kind == "view":  # a library may return other strides than in the trace; then it is a copy
            return f"{targets} = {arguments['self']}.reshape({arguments['size']})"
        given = ", ".join(f"{name}={argument}" for name, argument in arguments.items())
        return f"{targets} = torch.ops.{node.op}({given})"

    def views(self, values: Iterable[str], known: set[str]) -> list[str]:
        """Statements that compute the views among these values that are not known yet; they are known then."""
        lines: list[str] = []
        for value in values:
            node = self._graph.trace.producer.get(value)
            if node is None or not node.view or value in known:
                continue
            lines += self.views(node.reads, known)
            lines.append(self.call(node))
            known.update(node.outputs)
        return lines

    def literals(self) -> list[str]:
        """Statements that make the tensors that forward() makes from numbers."""
        trace = self._graph.trace
        return [
            f"{self[name]} = torch.tensor({list(elements)}, dtype=torch.{trace.tensors[name].dtype})"
            f".reshape({list(trace.tensors[name].shape)})"
            for name, elements in trace.literals.items()
        ]

    def _argument(self, argument: Argument) -> str:
        if isinstance(argument, Ref):
            return self[argument.value]
        if isinstance(argument, TorchConstant):
            return f"torch.{argument.torch}"
        if isinstance(argument, tuple):
            return f"[{', '.join(map(self._argument, argument))}]"
        return f'float("{argument}")' if isinstance(argument, float) and "n" in repr(argument) else repr(argument)


def _places(takes: Any, arguments: Sequence[str]) -> dict[int, str]:
    """Number of an input -> the Python expression that has it."""
    match takes:
        case {"tuple": [*items]}:
            named = list(zip(arguments, items, strict=False))
        case _:
            return {}
    found: dict[int, str] = {}
    while named:
        name, item = named.pop()
        match item:
            case {"tensor": int(index)}:
                found[index] = name
            case {"tuple": [*items]} | {"list": [*items]}:
                named += [(f"{name}[{place}]", one) for place, one in enumerate(items)]
    return found
