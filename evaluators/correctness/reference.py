"""The problem's own `Model` in the judge's process: weights, inputs, its output, and its output in fp64."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.reference import names_of
from kbevolve.evaluators.correctness.inputs import Distribution, nominal, transformed
from kbevolve.evaluators.correctness.rule import CAPS
from kbevolve.evaluators.correctness.slices import compute_in_slices, separable_inputs
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import free_bytes, is_out_of_memory, release_cache
from kbevolve.evaluators.worker.precision import DTYPES, cast, flags_for
from kbevolve.evaluators.worker.values import Unpackable, pack, unpack

_Result = TypeVar("_Result")

#: Bytes for each element of inputs and outputs in fp64: the number, a copy, and two intermediate results.
_FP64_BYTES = 4 * 8


class Reference:
    """A problem's reference on one device. Its methods raise `EvaluatorError` when the problem's code fails."""

    def __init__(self, problem: Problem, device: Device, precision: str, *, weight_seed: int) -> None:
        self.name = problem.name
        self.device = torch.device(device.torch_name)
        self._device = device
        self.precision = precision
        #: The file as it runs on this device.
        self.source = problem.source_for(device.type)
        namespace = self._guard("file", lambda: names_of(self.source, problem.path))
        self._get_inputs: Callable[[], list[Any]] = namespace["get_inputs"]
        #: What `Model` and `ModelNew` are constructed with.
        self.arguments = self._listed("get_init_inputs()", namespace["get_init_inputs"], weight_seed)
        self._model_class: Callable[..., torch.nn.Module] = namespace["Model"]
        self._weight_seed = weight_seed
        self.model: torch.nn.Module = self._build(weight_seed)
        self._exact_model: torch.nn.Module | None = None
        #: Indices of the inputs, and names of the state, that forward() changes: outputs as well.
        self.written_inputs: tuple[int, ...] = ()
        self.written_state: tuple[str, ...] = ()
        self._output_elements = 0
        #: Whether the whole truth exceeds the memory, and the inputs that can be sliced; None before that is known.
        self._too_large: bool | None = None
        #: Whether a truth was in fp64: the others then have to be.
        self._was_exact = False
        self._separable: tuple[int, ...] | None = None

    def inputs(self, seed: int, transform: Distribution) -> tuple[Any, list[torch.Tensor]]:
        """Inputs drawn with `seed`: their structure (`worker.values.pack`) and the tensors in it."""
        drawn = self._listed("get_inputs()", self._get_inputs, seed)
        structure, tensors = self.packed("get_inputs()", drawn)
        generator = torch.Generator(self.device).manual_seed(seed ^ 0x5EED)
        moved = [cast(tensor.detach().to(self.device), self.precision) for tensor in tensors]
        return structure, transformed(transform, moved, generator)

    def output(self, structure: Any, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """The reference's output in the task's precision: its structure, and its tensors.

        Behind the tensors of the structure follow the inputs and the state that forward() changed.
        """
        with flags_for(self.precision):
            form, leaves = self._run(self.model, structure, tensors)
        self._output_elements = sum(leaf.numel() for leaf in leaves)
        return form, leaves

    def returned(self, structure: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that forward() returns, without the inputs and the state that it changed."""
        leaves = self.output(structure, tensors)[1]
        return leaves[: len(leaves) - len(self.written_inputs) - len(self.written_state)]

    def truth(self, structure: Any, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        """The output in fp64 and True; the output in the task's dtype and False where fp64 does not run.

        Where the whole does not fit into memory and samples are independent, the batch is computed in slices.

        Raises:
            EvaluatorError: the reference fails, or memory is too short for a truth in fp64, as an earlier one was.
        """
        lack = "the slices do not fit into memory"
        if self._too_large is None:
            # Without memory CUDA raises an exception; on the CPU the system may kill the process.
            self._too_large = self._device.type == "cpu" and self._pieces(tensors) > 1
        if not self._too_large:
            try:
                exact = self._in_fp64(structure, tensors)
                self._was_exact = True
                return exact, True
            except EvaluatorError as error:
                self._too_large, lack = is_out_of_memory(error), str(error.__cause__)
        if self._too_large:
            release_cache(self._device)
            sliced = self._in_slices(structure, tensors)
            if sliced is not None:
                self._was_exact = True
                return sliced, True
            if self._was_exact:
                self._too_large = None  # there may be more memory next time
                raise EvaluatorError(f"{self.name}: no memory for the truth in fp64") from torch.OutOfMemoryError(lack)
        with flags_for("fp32"):
            return self._run(self.model, structure, tensors)[1], False

    def reweighted(self, seed: int) -> dict[str, torch.Tensor]:
        """The state, by name, of a new `Model` with the same arguments and another seed."""
        return dict(self._build(seed).state_dict())

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of the present state, by name."""
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Compute with this state from now on."""
        self.model.load_state_dict(state)
        if self._exact_model is not None:
            self._exact_model.load_state_dict(state)

    @contextmanager
    def weights(self, state: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Compute with this state inside the block, and restore the state before it afterwards."""
        before = self.state()
        self.load(state)
        try:
            yield
        finally:
            self.load(before)

    def find_side_effects(self) -> tuple[bool, ...]:
        """Find `written_inputs` and `written_state`; returns of each output whether it shares memory with an input."""
        structure, tensors = self.inputs(self._weight_seed, nominal)
        given = [tensor.clone() for tensor in tensors]
        before = self.state()
        self.written_state = tuple(before)
        with flags_for(self.precision):
            leaves = self._call(self.model, structure, given)[1]
        outputs, after = leaves[: len(leaves) - len(before)], leaves[len(leaves) - len(before) :]
        self.written_inputs = tuple(
            index for index, tensor in enumerate(tensors) if not same_values(given[index], tensor)
        )
        self.written_state = tuple(
            name for (name, old), new in zip(before.items(), after, strict=True) if not same_values(old, new)
        )
        storages = {tensor.untyped_storage().data_ptr() for tensor in given if tensor.numel()}
        return tuple(leaf.untyped_storage().data_ptr() in storages and leaf.numel() > 0 for leaf in outputs)

    def packed(self, what: str, value: Any) -> tuple[Any, list[torch.Tensor]]:
        """Structure and tensors (`worker.values.pack`) of the result of `what`."""
        tensors: list[torch.Tensor] = []
        try:
            return pack(value, tensors), tensors
        except Unpackable as error:
            raise EvaluatorError(f"{self.name}: {what} returns {error}; return tensors and plain values") from None

    def _build(self, seed: int) -> torch.nn.Module:
        model = self._guard("Model", lambda: self._seeded(lambda: self._model_class(*self.arguments), seed))
        # In evaluation mode dropout does nothing and batch norm does not change its statistics.
        built: torch.nn.Module = model.to(device=self.device, dtype=DTYPES[self.precision]).eval()
        return built

    def _in_fp64(self, structure: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._exact_model is None:
            self._exact_model = self._guard("fp64 copy", lambda: copy.deepcopy(self.model).double())
        doubled = self._guard(
            "fp64 inputs",
            lambda: [
                tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor.clone()
                for tensor in tensors
            ],
        )
        return self._call(self._exact_model, structure, doubled)[1]

    def _in_slices(self, structure: Any, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """The truth from slices of the batch; None where samples depend on each other or one does not fit."""
        if self._separable is None:
            outputs = self.output(structure, tensors)[1]
            with flags_for(self.precision):
                found = separable_inputs(
                    lambda parts: self._run(self.model, structure, parts)[1],
                    tensors,
                    outputs,
                    tolerance=CAPS[self.precision],
                )
            self._separable = found or ()
        if not self._separable:
            return None
        try:
            return compute_in_slices(
                lambda parts: self._in_fp64(structure, parts), tensors, self._separable, pieces=self._pieces(tensors)
            )
        except EvaluatorError:
            return None

    def truth_bytes(self, tensors: Sequence[torch.Tensor]) -> int:
        """Memory that the whole truth for these inputs may take while it is computed: an estimate."""
        return _FP64_BYTES * (sum(tensor.numel() for tensor in tensors) + self._output_elements)

    def _pieces(self, tensors: Sequence[torch.Tensor]) -> int:
        """Number of slices, so that one slice should fit into memory."""
        return max(1, -(-self.truth_bytes(tensors) // free_bytes(self._device)))

    def _run(
        self, model: torch.nn.Module, structure: Any, tensors: Sequence[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        # Copies: a reference that works in place must not change the candidate's inputs.
        return self._call(model, structure, self._guard("inputs", lambda: [tensor.clone() for tensor in tensors]))

    def _call(
        self, model: torch.nn.Module, structure: Any, tensors: Sequence[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        def call() -> Any:
            with torch.no_grad():
                return model(*unpack(structure, tensors))

        with preserved_state(model) as storages:
            form, leaves = self.packed("forward()", self._guard("forward()", call))
            if not leaves:
                raise EvaluatorError(f"{self.name}: forward() returns no tensor; there is nothing to compare")
            leaves += [tensors[index] for index in self.written_inputs]
            state = model.state_dict() if self.written_state else {}
            leaves += [state[name] for name in self.written_state]
            # Outputs that share memory with the model's state must keep their values after the state changes.
            return form, [
                leaf.detach().clone() if leaf.untyped_storage().data_ptr() in storages else leaf.detach()
                for leaf in leaves
            ]

    def _seeded(self, make: Callable[[], _Result], seed: int) -> _Result:
        # What `torch.manual_seed` does for these two. For every other kind of device it formats a stack trace: 1.4 ms.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        with torch.device(self.device):
            return make()

    def _listed(self, what: str, function: Callable[[], Any], seed: int) -> list[Any]:
        """What a function of the problem returns: a list."""

        def drawn() -> list[Any]:
            if not isinstance(found := self._seeded(function, seed), list | tuple):
                raise TypeError(f"it returned {type(found).__name__}, not a list of arguments")
            return list(found)

        return self._guard(what, drawn)

    def _guard(self, what: str, act: Callable[[], _Result]) -> _Result:
        try:
            return act()
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            remedy = "repair the problem's file"
            if is_out_of_memory(error):
                remedy = "use smaller sizes"
            elif isinstance(error, ModuleNotFoundError):
                remedy = f"install it: pip install {error.name} (all that KernelBench needs: 'kbevolve[kernelbench]')"
            elif "huggingface.co" in text:
                remedy = "download the model into a folder, and name it in HF_HUB_CACHE: kernels may read it only there"
            raise EvaluatorError(
                f"{self.name}: the reference's {what} fails on {self.device}: {type(error).__name__}: {text}; {remedy}"
            ) from error


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal, NaN included."""
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


@contextmanager
def preserved_state(model: torch.nn.Module) -> Iterator[set[int]]:
    """A call that leaves the state as it was: restore the model's buffers and the attributes of its modules afterwards.

    Otherwise two calls on the same inputs would differ where forward keeps a running mean or a hidden state.
    Parameters are not copied: a forward pass does not change them.

    Yields:
        The addresses of the storages of parameters, buffers and tensors among the attributes.
    """
    modules = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    tensors = [
        value
        for _, attributes, buffers in modules
        for value in (*attributes.values(), *buffers.values())
        if isinstance(value, torch.Tensor)
    ]
    copies = [tensor.clone() for tensor in tensors]
    try:
        yield {tensor.untyped_storage().data_ptr() for tensor in (*tensors, *model.parameters()) if tensor.numel()}
    finally:
        for module, attributes, buffers in modules:
            for now, before in ((vars(module), attributes), (module._buffers, buffers)):
                now.clear()
                now.update(before)
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
