"""What a platform must know to construct and to call a kernel without the problem's file."""

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

from kbevolve.configs.errors import UsageError
from kbevolve.configs.reference import names_of
from kbevolve.configs.syntax import literal
from kbevolve.evolve.exports.measured import MeasuredKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The reference's arguments, as names and plain values."""

    #: The constructor's arguments, as a Python literal: ``[8, True]``.
    arguments: str
    #: Names of the arguments of forward(), in order.
    inputs: tuple[str, ...]
    #: Floating-point parameters and persistent buffers, by their names in `state_dict()`, in its order. Integers
    #: (counters, tables of indices) are the kernel's own.
    weights: tuple[str, ...]

    @property
    def weight_arguments(self) -> tuple[str, ...]:
        """The weights as names of a function's arguments, none of which is an input's: ``linear_weight``."""
        taken = set(self.inputs)
        found = []
        for weight in self.weights:
            name = weight.replace(".", "_")
            while name in taken or not name.isidentifier():
                name = f"weight_{name}"
            taken.add(name)
            found.append(name)
        return tuple(found)


def interface_of(found: MeasuredKernel) -> Interface:
    """The interface of the kernel's reference, whose file is run on tensors without data.

    Raises:
        UsageError: the kernel does not follow the weights that it is given, or what it is constructed or called with
            cannot be written as text, or given by another program.
    """
    found.check_weights()
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    namespace = names_of(found.reference, found.problem.path)
    arguments = repr(list(namespace["get_init_inputs"]()))
    try:
        literal(arguments)
    except (SyntaxError, ValueError):
        shown = " ".join(arguments.split())[:80]
        raise _refusal(found, f"its constructor takes {shown}, which cannot be written as text") from None
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings(action="ignore"):
            model, inputs = namespace["Model"](*literal(arguments)), namespace["get_inputs"]()
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise _refusal(found, f"its reference does not run on tensors without data ({why})") from error
    strange = [type(one).__name__ for one in inputs if not isinstance(one, torch.Tensor | int | float | bool)]
    if strange or not any(isinstance(one, torch.Tensor) for one in inputs):
        raise _refusal(found, f"get_inputs() returns {strange[0] if strange else 'no tensor'}; tensors are wanted")
    state = model.state_dict().items()
    return Interface(
        arguments=arguments,
        inputs=_names(model.forward, len(inputs)),
        weights=tuple(name for name, tensor in state if tensor.is_floating_point()),
    )


def _names(forward: Any, count: int) -> tuple[str, ...]:
    """The names of the first arguments; those of ``*args`` are numbered."""
    parameters = list(inspect.signature(forward).parameters.values())
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)][:count]
    return (*named, *(f"input_{number}" for number in range(len(named), count)))


def _refusal(found: MeasuredKernel, why: str) -> UsageError:
    return UsageError(
        f"kernel {found.kernel.id} of {found.run.problem_name} cannot be exported so: {why}; export it as modelnew"
    )
