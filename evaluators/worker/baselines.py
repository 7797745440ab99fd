"""The reference as PyTorch itself would make it faster: torch.compile, and CUDA graphs that replay its launches.

Only the worker of the reference uses this. Its inputs stay at their addresses while their contents change from call
to call, and its output is read before the next call: what a CUDA graph needs, so nothing is copied for its sake.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Calls before a capture: the first ones choose algorithms, fill caches and compile, which a capture must not see.
_WARM_UP = 3

Call = Callable[..., Any]


def wrap(model: torch.nn.Module, kind: str) -> Call:
    """The model, to be called with the same arguments as before, made fast by one of PyTorch's own means.

    Precision and backend flags stay as they are. Whatever PyTorch cannot do with a model is raised at the first call.

    Args:
        model: in evaluation mode, on its device.
        kind: "eager"; "compile" (`torch.compile` as it comes); "max-autotune" (the same with every search that it
            has, replayed as a CUDA graph where it can be captured); "graph" (eager, captured in a CUDA graph).

    Raises:
        ValueError: there is no such kind.
    """
    match kind:
        case "eager":
            return model
        case "compile":
            return _compiled(model, "default")
        case "max-autotune":
            # torch's own graphs in mode "max-autotune" copy each input first, which ours do not.
            compiled = _compiled(model, "max-autotune-no-cudagraphs")
            return Replayed(compiled, fall_back=True) if _on_cuda(model) else compiled
        case "graph":
            return Replayed(model, fall_back=False)
    raise ValueError(f"no baseline {kind!r}; there are eager, compile, max-autotune and graph")


class Replayed:
    """A callable whose work on the GPU is captured once and replayed: launches cost nothing on the CPU.

    The output is the same tensors in every call. A call with other tensors, or other plain values, captures anew.
    """

    def __init__(self, call: Call, *, fall_back: bool) -> None:
        """`fall_back`: call it plainly when it cannot be captured, instead of raising."""
        self._call = call
        self._fall_back = fall_back
        self._graph: torch.cuda.CUDAGraph | None = None
        self._output: Any = None
        self._key: tuple[Any, ...] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """One call on the current stream."""
        key = _key(arguments)
        if key != self._key:
            self._capture(arguments)
            self._key = key
        if self._graph is None:
            return self._call(*arguments)
        self._graph.replay()
        return self._output

    def _capture(self, arguments: Sequence[Any]) -> None:
        self._graph, self._output, self._key = None, None, None
        # On copies: a reference that changes its inputs must find them unchanged in the call that counts.
        copies = pytree.tree_map_only(torch.Tensor, torch.clone, tuple(arguments))
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._call(*copies)
        torch.cuda.current_stream().wait_stream(stream)
        del copies
        graph = torch.cuda.CUDAGraph()
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        before = random.clone_state()
        try:
            with torch.cuda.graph(graph):
                self._output = self._call(*arguments)
        except RuntimeError:
            # A capture that fails leaves the generator waiting for its end, and every random draw would raise.
            random.graphsafe_set_state(before)
            if not self._fall_back:
                raise
            torch.cuda.synchronize()
        else:
            self._graph = graph


def _compiled(model: torch.nn.Module, mode: str) -> Call:
    # Shapes never change here, and code for any shape is slower than code for this one.
    compiled: Call = torch.compile(model, mode=mode, dynamic=False)
    return compiled


def _on_cuda(model: torch.nn.Module) -> bool:
    """Whether to expect a CUDA device; a model without weights runs where its inputs are."""
    tensors = [*model.parameters(), *model.buffers()]
    return any(tensor.is_cuda for tensor in tensors) if tensors else torch.cuda.is_available()


def _key(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What a captured graph depends on: where its tensors lie and what else it was called with."""
    return tuple(
        (leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(tuple(arguments))
    )
