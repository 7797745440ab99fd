"""The reference made faster by PyTorch itself: torch.compile, and CUDA graphs that replay its launches.

Only the worker of the reference uses this. Its inputs keep their addresses while their contents change from call to
call, and its output is read before the next call. A CUDA graph needs just this, so nothing is copied for it.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Calls before a capture: the first ones choose algorithms, fill caches and compile, which must not be captured.
_WARM_UP = 3

Call = Callable[..., Any]


def wrap(model: torch.nn.Module, kind: str) -> Call:
    """The model made faster by PyTorch, called with the same arguments.

    Precision and backend flags stay as they are between calls. The first call raises what PyTorch cannot do with it.

    Args:
        model: in evaluation mode, on its device.
        kind: "eager"; "compile" (`torch.compile` with its defaults); "max-autotune" (with all its searches, replayed as
            a CUDA graph where it can be captured); "graph" (eager, captured in a CUDA graph); "default-flags" (eager,
            with PyTorch's own choice of TF32 while it is called).

    Raises:
        ValueError: there is no such kind.
    """
    match kind:
        case "eager":
            return model
        case "compile":
            return _compiled(model, "default")
        case "max-autotune":
            # The graphs of torch's mode "max-autotune" copy each input first; ours do not.
            compiled = _compiled(model, "max-autotune-no-cudagraphs")
            return Replayed(compiled, fall_back=True) if _on_cuda(model) else compiled
        case "graph":
            return Replayed(model, fall_back=False)
        case "default-flags":
            return partial(_with_default_flags, model)
    raise ValueError(f"no baseline {kind!r}; there are eager, compile, max-autotune, graph and default-flags")


def _with_default_flags(model: torch.nn.Module, *arguments: Any) -> Any:
    """A call in which cuDNN may use TF32 and cuBLAS may not, as in a program that sets no flag."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32, convolutions.allow_tf32 = False, True
    try:
        return model(*arguments)
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


class Replayed:
    """A callable whose work on the GPU is captured once and replayed, so that launches cost no CPU time.

    Every call returns the same tensors. A call with other tensors or other plain values captures again.
    """

    def __init__(self, call: Call, *, fall_back: bool) -> None:
        """`fall_back`: call without a graph when the capture fails, instead of raising."""
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
        # On copies: a reference that changes its inputs must find them unchanged in the captured call.
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
            # A failed capture leaves the generator in capture mode, in which every random draw raises.
            random.graphsafe_set_state(before)
            if not self._fall_back:
                raise
            torch.cuda.synchronize()
        else:
            self._graph = graph


def _compiled(model: torch.nn.Module, mode: str) -> Call:
    if mode != "default":
        # The searches compile dozens of kernels. This variable lets threads of this process do so; what lets a pool of
        # processes do so, which a worker may not start, was read when torch was imported.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(len(os.sched_getaffinity(0)))
        # Of hundreds of kernels Triton would keep every text: more than 1 GB for a network of 57 convolutions.
        os.environ["TRITON_STORE_BINARY_ONLY"] = "1"
    # Shapes never change here, and code for one shape is faster than code for any shape.
    compiled: Call = torch.compile(model, mode=mode, dynamic=False)
    return compiled


def _on_cuda(model: torch.nn.Module) -> bool:
    """Whether the model runs on a CUDA device; one without weights runs where its inputs are."""
    tensors = [*model.parameters(), *model.buffers()]
    return any(tensor.is_cuda for tensor in tensors) if tensors else torch.cuda.is_available()


def _key(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What a captured graph depends on: the addresses of its tensors and its plain arguments."""
    return tuple(
        (leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in pytree.tree_leaves(tuple(arguments))
    )
