"""PyTorch's own sample inputs of an operator (`torch.testing._internal`, the OpInfo data base), and what each asks for.

The samples are those with which PyTorch tests its operators: no axes at all, broadcasting, other layouts, every option.
A sample is drawn again from torch's generator each time, so its values differ and its shapes do not.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from kbevolve.configs.errors import UsageError
from kbevolve.evaluators.graph.records import Node
from kbevolve.evaluators.graph.tracer import trace

#: Samples of one OpInfo that are looked at, evenly spread: pooling has 1440, and each is traced.
MOST_SAMPLES = 240
_DATA_BASE = "torch.testing._internal.common_methods_invocations"


class OpInfo(Protocol):
    """What is used of torch's class."""

    name: str
    variant_test_name: str
    aten_name: str
    op: Callable[..., Any]

    def supported_dtypes(self, device_type: str) -> set[torch.dtype]:
        """The dtypes that the operator computes in."""
        ...

    def sample_inputs(self, device: str, dtype: torch.dtype, *, set_seed: bool = True) -> Iterator[Any]:
        """Samples with `input`, `args` and `kwargs`; `set_seed` draws the same values each time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSample:
    """One sample, and the call that it is."""

    #: Of the OpInfo, and the sample's number there.
    name: str
    variant: str
    number: int
    dtype: str
    #: In the order of the call.
    tensors: tuple[torch.Tensor, ...]
    #: The one operator that runs; None where it is none or several.
    node: Node | None
    #: Names of the tensors in `node`, as numbered in `tensors`.
    values: tuple[str, ...] = ()


def samples_of(kind: str, dtype: torch.dtype, device_type: str) -> Iterator[OpSample]:
    """The samples of all OpInfos of an operator.

    Args:
        kind: the operator, ``softmax`` for "aten.softmax.int".
        dtype: of floating-point tensors.
        device_type: "cpu" or "cuda": whether the operator has this dtype there. The samples are on the CPU.

    Raises:
        UsageError: a package is missing.
    """
    for info in _data_base():
        names = {info.aten_name, info.name.removeprefix("nn.functional.").replace(".", "_")}
        if not names & {kind, kind.removesuffix("_loss")} or dtype not in info.supported_dtypes(device_type):
            continue
        samples = list(info.sample_inputs("cpu", dtype))
        step = -(-len(samples) // MOST_SAMPLES)
        for number in range(0, len(samples), max(1, step)):
            yield _traced(info, number, samples[number], dtype)


def draw_sample(name: str, variant: str, number: int, dtype: str, places: Sequence[int]) -> list[torch.Tensor]:
    """Tensors of a sample by their places among its tensors, drawn from torch's generator: a problem's get_inputs()."""
    info = next(one for one in _data_base() if (one.name, one.variant_test_name) == (name, variant))
    samples = info.sample_inputs("cpu", getattr(torch, dtype), set_seed=False)
    leaves, _ = _flat(next(islice(samples, number, None)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return [tensors[place] for place in places]


def _traced(info: OpInfo, number: int, sample: Any, dtype: torch.dtype) -> OpSample:
    leaves, spec = _flat(sample)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    node: Node | None = None
    values: tuple[str, ...] = ()
    try:
        found = trace(lambda: _Call(info.op, leaves, spec), lambda: tensors, dtype)
    except Exception:  # an operator that cannot be traced is no single one
        found = None
    if found and len(found.nodes) == 1 and found.outputs == found.nodes[0].outputs[:1]:
        node, values = found.nodes[0], found.inputs
    name = str(dtype).removeprefix("torch.")
    return OpSample(
        name=info.name, variant=info.variant_test_name, number=number, dtype=name, tensors=tensors, node=node,
        values=values,
    )  # fmt: skip


class _Call(torch.nn.Module):
    """A call of an operator whose tensors are arguments, and all else constants."""

    def __init__(self, op: Callable[..., Any], leaves: Sequence[Any], spec: Any) -> None:
        super().__init__()
        self._op, self._spec = op, spec
        self._constants = [None if isinstance(leaf, torch.Tensor) else (leaf,) for leaf in leaves]

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        arguments, options = tree_unflatten(
            [next(given) if constant is None else constant[0] for constant in self._constants], self._spec
        )
        return self._op(*arguments, **options)


def _flat(sample: Any) -> tuple[list[Any], Any]:
    return tree_flatten(((sample.input, *sample.args), sample.kwargs))


def _data_base() -> list[OpInfo]:
    try:
        # torch's tests forbid their process to set flags, such as TF32's, for good. The judge sets them.
        with mock.patch.object(torch.backends, "disable_global_flags"):
            found: list[OpInfo] = importlib.import_module(_DATA_BASE).op_db
    except ModuleNotFoundError as error:
        raise UsageError(f"OpInfo needs {error.name}: pip install 'kbevolve[opinfo]'") from None
    return found
