"""The problem's own `Model` in the judge's process: weights, inputs, its answer, and the same in fp64."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.inputs import Transform
from kbevolve.evaluators.worker.precision import DTYPES, cast, set_flags
from kbevolve.evaluators.worker.values import Unpackable, pack, unpack

_Result = TypeVar("_Result")


class Reference:
    """One problem's reference on one device. Its methods raise `EvaluatorError` when the problem's code fails."""

    def __init__(self, problem: Problem, device: Device, precision: str, *, weight_seed: int) -> None:
        self.name = problem.name
        self.device = torch.device(device.torch_name)
        self.precision = precision
        #: The file as it is run on this device.
        self.source = problem.source_for(device.type)
        namespace: dict[str, Any] = {"__name__": "reference"}
        self._guard("file", lambda: exec(compile(self.source, str(problem.path), "exec"), namespace))
        self._get_inputs: Callable[[], list[Any]] = namespace["get_inputs"]
        #: What `Model` and `ModelNew` are constructed with.
        self.arguments: list[Any] = list(
            self._guard("get_init_inputs()", lambda: self._seeded(namespace["get_init_inputs"], weight_seed))
        )
        model = self._guard("Model", lambda: self._seeded(lambda: namespace["Model"](*self.arguments), weight_seed))
        self.model: torch.nn.Module = model.to(device=self.device, dtype=DTYPES[precision]).eval()
        self._exact_model: torch.nn.Module | None = None

    def inputs(self, seed: int, transform: Transform) -> tuple[Any, list[torch.Tensor]]:
        """Inputs drawn with `seed`: their structure (`worker.values.pack`) and the tensors in it."""
        drawn = list(self._guard("get_inputs()", lambda: self._seeded(self._get_inputs, seed)))
        tensors: list[torch.Tensor] = []
        try:
            structure = pack(drawn, tensors)
        except Unpackable as error:
            raise EvaluatorError(
                f"{self.name}: get_inputs() returns {error}; it may return tensors and plain values"
            ) from None
        generator = torch.Generator(self.device).manual_seed(seed ^ 0x5EED)
        moved = [cast(tensor.detach().to(self.device), self.precision) for tensor in tensors]
        return structure, [transform(tensor, generator) for tensor in moved]

    def answer(self, structure: Any, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """The reference's own output in the task's precision: structure and tensors."""
        with _flags(self.precision):
            return self._run(self.model, structure, tensors)

    def truth(self, structure: Any, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        """The output computed in fp64, and True; when that does not run, in the precision it has, and False."""
        try:
            if self._exact_model is None:
                self._exact_model = self._guard("fp64 copy", lambda: copy.deepcopy(self.model).double())
            doubled = [tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors]
            return self._run(self._exact_model, structure, doubled)[1], True
        except EvaluatorError as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
            with _flags("fp32"):
                return self._run(self.model, structure, tensors)[1], False

    def _run(
        self, model: torch.nn.Module, structure: Any, tensors: Sequence[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        def call() -> Any:
            # Copies: a reference that works in place must not change what the candidate gets.
            with torch.no_grad():
                return model(*unpack(structure, [tensor.clone() for tensor in tensors]))

        leaves: list[torch.Tensor] = []
        output = self._guard("forward()", call)
        try:
            packed = pack(output, leaves)
        except Unpackable as error:
            raise EvaluatorError(f"{self.name}: forward() returns {error}; it must return tensors") from None
        if not leaves:
            raise EvaluatorError(f"{self.name}: forward() returns no tensor; there is nothing to compare")
        return packed, [leaf.detach() for leaf in leaves]

    def _seeded(self, make: Callable[[], _Result], seed: int) -> _Result:
        torch.manual_seed(seed)
        with torch.device(self.device):
            return make()

    def _guard(self, what: str, act: Callable[[], _Result]) -> _Result:
        try:
            return act()
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            remedy = "use smaller sizes" if isinstance(error, torch.OutOfMemoryError) else "repair the problem's file"
            raise EvaluatorError(
                f"{self.name}: the reference's {what} fails on {self.device}: {type(error).__name__}: {text}; {remedy}"
            ) from error


@contextmanager
def _flags(precision: str) -> Iterator[None]:
    """The precision's backend flags, and the old ones afterwards: the judge's process may be a user's program."""
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    set_flags(precision)
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
