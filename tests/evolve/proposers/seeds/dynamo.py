"""What torch.compile hands to a backend."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def graph_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, list[Any]]:
    """The graph of a function or model that is called without gradients, and the inputs that the graph takes."""
    graphs: list[tuple[Any, list[Any]]] = []

    def backend(graph: Any, example_inputs: list[Any]) -> Any:
        graphs.append((graph, example_inputs))
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*inputs)
    return graphs[0]
