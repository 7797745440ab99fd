"""Which module constants of a problem's file are sizes, found by running the file without data.

A size is a constant of which an axis of an input depends, or that is itself the length of an axis of the output
(``OUT_FEATURES``). Kernel sizes, strides and numbers of groups are none: with another one, the problem is another.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import constants_of, with_constants
from kbevolve.configs.reference import names_of

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The shapes of a problem at certain sizes."""

    inputs: tuple[Shape, ...]
    #: Empty where the model fails.
    outputs: tuple[Shape, ...] = ()
    #: Of inputs, weights and outputs.
    elements: int = 0
    #: Why the model cannot be run, one line; "" where it runs.
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A module constant that is a size."""

    name: str
    #: Its value in the file, on the device.
    nominal: int
    #: Whether the first axis of the first input depends on it.
    leads: bool


class Dimensions:
    """The sizes of one text, and its shapes at other sizes."""

    def __init__(self, source: str, *, name: str) -> None:
        """Run the file once for each constant.

        Args:
            source: the problem's text as it runs on the device.
            name: of the problem, for messages.

        Raises:
            EvaluatorError: the file fails before its model is called.
        """
        self._source = source
        self._known: dict[tuple[tuple[str, int], ...], Shapes] = {}
        try:
            self.nominal = self.shapes({})
        except Exception as error:
            raise EvaluatorError(f"{name}: its file fails without data: {_one_line(error)}") from None
        self.found = tuple(
            dimension
            for constant, value in constants_of(source).items()
            if isinstance(value, int) and value > 0
            if (dimension := self._dimension(constant, value)) is not None
        )

    def shapes(self, sizes: Mapping[str, int]) -> Shapes:
        """The shapes at these sizes; raises what the file raises before its model is called."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            self._known[key] = _shapes_of(with_constants(self._source, sizes))
        return self._known[key]

    def runs(self, sizes: Mapping[str, int], *, most_elements: int) -> bool:
        """Whether the model runs at these sizes, with so many elements at most.

        Where it cannot be run without data at all, only inputs are known.
        """
        try:
            found = self.shapes(sizes)
        except Exception:
            return False
        runs = not found.failure or bool(self.nominal.failure)
        return runs and found.elements <= most_elements

    def _dimension(self, name: str, value: int) -> Dimension | None:
        for other in (value + 1, 2 * value):
            try:
                found = self.shapes({name: other})
            except Exception:
                continue
            if found.inputs != self.nominal.inputs:
                first, before = (shapes.inputs[0][:1] if shapes.inputs else () for shapes in (found, self.nominal))
                return Dimension(name=name, nominal=value, leads=first != before)
            pairs = [
                (old, new)
                for olds, news in zip(self.nominal.outputs, found.outputs, strict=False)
                for old, new in zip(olds, news, strict=False)
            ]
            if (value, other) in pairs:
                return Dimension(name=name, nominal=value, leads=False)
        return None


def _shapes_of(source: str) -> Shapes:
    """The shapes of a text, which is run on tensors without data."""
    with _quiet(), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        namespace = names_of(source)
        inputs = list(namespace["get_inputs"]())
        shapes, elements = _shapes(inputs)
        try:
            model = namespace["Model"](*namespace["get_init_inputs"]()).eval()
            outputs, more = _shapes(model(*inputs))
        except Exception as error:
            return Shapes(inputs=shapes, elements=elements, failure=_one_line(error))
    weights = sum(tensor.numel() for tensor in model.state_dict().values())
    return Shapes(inputs=shapes, outputs=outputs, elements=elements + weights + more)


def _shapes(values: Any) -> tuple[tuple[Shape, ...], int]:
    """The shapes of the tensors in any structure, and the number of their elements."""
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    return tuple(tuple(tensor.shape) for tensor in tensors), sum(tensor.numel() for tensor in tensors)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's log of sizes that a model refuses, which is expected here."""
    log = logging.getLogger(f"{FakeTensorMode.__module__}")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
