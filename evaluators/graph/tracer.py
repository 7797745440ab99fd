"""Traces a model to ATen operators, without data: torch.export on fake tensors.

Operators stay whole where torch has one (attention, convolutions, norms, losses, recurrent layers): torch.export's
graph before decomposition has them as the model calls them. Only a graph with work in place is rewritten by torch
(`run_decompositions`), into one without.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import getitem
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only, tree_unflatten

from kbevolve.configs.reference import names_of
from kbevolve.evaluators.graph.records import (
    Argument,
    Node,
    Ref,
    TensorSpec,
    TorchConstant,
    Trace,
    UntraceableError,
    refs,
)
from kbevolve.evaluators.worker.values import Unpackable, pack

#: Operators that return their argument's values; without them where the strides are the same, too.
_IDENTITIES = {
    "alias", "clone", "contiguous", "detach", "detach_", "dropout", "alpha_dropout", "feature_dropout", "expand",
    "expand_as", "flatten", "identity", "lift_fresh", "lift_fresh_copy", "reshape", "to", "_to_copy", "type_as",
    "view", "positive", "slice",
}  # fmt: skip
#: By torch's own numbers.
_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
#: Stands for any tensor in a structure.
_TENSOR = torch.empty(0)
#: Elements of a tensor that a trace may hold.
_MOST_ELEMENTS = 4096
_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout")


def trace_source(source: str, dtype: torch.dtype) -> Trace:
    """The trace of a problem's file, which is run. Raises as `trace` does, and what the file raises."""
    namespace = names_of(source)
    arguments = list(namespace["get_init_inputs"]())
    return trace(lambda: namespace["Model"](*arguments), namespace["get_inputs"], dtype)


def trace(build: Callable[[], torch.nn.Module], draw: Callable[[], Sequence[Any]], dtype: torch.dtype) -> Trace:
    """The trace of a model in evaluation mode.

    Args:
        build: makes the model; its parameters become fake, so nothing is allocated.
        draw: makes the inputs, fake as well.
        dtype: of floating-point weights and inputs.

    Raises:
        UntraceableError: an operator or a value in the graph has no plain record.
        Exception: from the model or torch.export, e.g. for control flow that depends on data.
    """
    # The fused encoder layer is one operator, which hides its products.
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), _whole_recurrences(), warnings.catch_warnings(action="ignore"):
            with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
                model = build().eval()
                inputs = tree_map_only(
                    torch.Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, tuple(draw())
                )
                _prepare(model, dtype)
            program = torch.export.export(model, inputs, strict=False)
            if any(_needs_rewriting(node.target) for node in program.graph.nodes if node.op == "call_function"):
                program = program.run_decompositions({})
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    return _Reader(program).trace()


def _needs_rewriting(target: Any) -> bool:
    """In place, or a region of its own as `torch.no_grad()` makes one."""
    return target is not getitem and (not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable)


def _prepare(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast the model, and make tensor attributes buffers.

    torch.export takes buffers as inputs and lets forward() replace them. `Module.to` cannot cast fake parameters.
    """
    made: dict[torch.Tensor, torch.Tensor] = {}  # a parameter that two modules share stays one

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.dtype == dtype:
            return tensor
        found = tensor.to(dtype)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        return made.setdefault(tensor, torch.nn.Parameter(found, requires_grad=False) if is_parameter else found)

    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                delattr(module, name)
                module.register_buffer(name, value, persistent=False)
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for tensors in tables:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = cast(tensor)


@contextmanager
def _whole_recurrences() -> Iterator[None]:
    """The shapes of recurrent layers from a formula: torch's fake kernels run every time step, a minute for 512."""

    def one_state(source: torch.Tensor, hx: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
        directions = 2 if rest[5] else 1  # params, has_biases, num_layers, dropout, train, bidirectional
        return source.new_empty(*source.shape[:-1], directions * hx.shape[-1]), torch.empty_like(hx)

    def two_states(source: torch.Tensor, hx: Sequence[torch.Tensor], *rest: Any) -> tuple[torch.Tensor, ...]:
        return *one_state(source, hx[0], *rest), torch.empty_like(hx[1])

    aten = torch.ops.aten
    operators: dict[Any, Callable[..., Any]] = {aten.lstm.input: two_states}
    operators |= dict.fromkeys((aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input), one_state)
    try:
        with ExitStack() as patches:
            for operator, shapes in operators.items():
                patches.enter_context(
                    mock.patch.dict(operator.py_kernels, dict.fromkeys(operator.py_kernels, shapes), clear=True)
                )
                operator._dispatch_cache.clear()
            yield
    finally:
        for operator in operators:
            operator._dispatch_cache.clear()


class _Reader:
    """Reads an exported program into records."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        #: Node of the program -> the value or values that it stands for.
        self._values: dict[torch.fx.Node, str | tuple[str, ...]] = {}
        self._tensors: dict[str, TensorSpec] = {}
        self._nodes: list[Node] = []
        self._literals: dict[str, tuple[float, ...]] = {}

    def trace(self) -> Trace:
        """The records, without nodes that no output needs."""
        signature = self._program.graph_signature
        names = {spec.arg.name: spec for spec in signature.input_specs}
        inputs: list[str] = []
        returned: Any = ()
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                spec = names[node.name]
                if isinstance(node.meta["val"], torch.Tensor):
                    is_state = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
                    value = f"self.{spec.target}" if is_state else node.name
                    if spec.kind is InputKind.CONSTANT_TENSOR:
                        self._literals[value] = _elements(self._program.constants[spec.target])
                    inputs += [value] if spec.kind is InputKind.USER_INPUT else []
                    self._values[node] = value
                    self._tensors[value] = tensor_spec(node.meta["val"])
            elif node.op == "call_function":
                self._read(node)
            elif node.op == "output":
                returned = node.args[0]
            else:
                raise UntraceableError(f"{node.op} {node.target} is no operator")
        outputs, written = [], {}
        call = self._program.call_spec
        pairs = list(zip(returned, signature.output_specs, strict=True))
        for leaf, spec in pairs:
            if isinstance(leaf, torch.fx.Node):
                value = str(self._values[leaf])
                if spec.kind is OutputKind.USER_OUTPUT:
                    outputs.append(value)
                else:
                    mutated = spec.target if spec.kind is OutputKind.USER_INPUT_MUTATION else f"self.{spec.target}"
                    written[str(mutated)] = value
        nodes = _needed(self._nodes, [*outputs, *written.values()])
        used = {*inputs, *outputs, *written, *written.values()}
        used |= {value for node in nodes for value in (*node.reads, *node.outputs)}
        return Trace(
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            written=written,
            takes=self._taken(),
            returns=_packed([leaf for leaf, spec in pairs if spec.kind is OutputKind.USER_OUTPUT], call.out_spec),
            nodes=tuple(nodes),
            literals={value: elements for value, elements in self._literals.items() if value in used},
            tensors={value: spec for value, spec in self._tensors.items() if value in used},
        )

    def _taken(self) -> Any:
        """The structure of forward()'s arguments."""
        specs = [one for one in self._program.graph_signature.input_specs if one.kind is InputKind.USER_INPUT]
        leaves = [one.arg.value if isinstance(one.arg, ConstantArgument) else one for one in specs]
        return _packed(leaves, self._program.call_spec.in_spec)["tuple"][0]

    def _read(self, node: torch.fx.Node) -> None:
        if node.target is getitem:
            self._values[node] = self._values[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        operator = node.target
        if not isinstance(operator, torch._ops.OpOverload) or operator._schema.is_mutable:
            raise UntraceableError(f"unsupported operator {operator}")
        result: Any = node.meta.get("val")
        if result is None and not node.users:  # an assertion
            return
        several = isinstance(result, tuple | list)
        results: list[Any] = list(result) if several else [result]
        if not all(isinstance(one, torch.Tensor) for one in results):
            raise UntraceableError(f"{operator} makes a number from data, on which the rest depends")
        arguments = self._arguments(operator, node)
        kind = str(operator).split(".")[1]
        source = next((one for one in node.all_input_nodes if one in self._values), None)
        specs = [tensor_spec(one) for one in results]
        if kind == "broadcast_tensors" and [self._tensors[value] for value in refs(arguments["tensors"])] == specs:
            self._values[node] = refs(arguments["tensors"])
            return
        same = source is not None and not several and self._tensors.get(str(self._values[source])) == specs[0]
        if same and kind in _IDENTITIES and not (kind in _DROPOUTS and arguments["train"]):
            self._values[node] = self._values[source]  # type: ignore[index]
            return
        outputs = tuple(f"{node.name}[{index}]" for index in range(len(specs))) if several else (node.name,)
        self._values[node] = outputs if several else node.name
        self._tensors |= dict(zip(outputs, specs, strict=True))
        self._nodes.append(
            Node(
                name=node.name,
                op=str(operator),
                arguments=arguments,
                outputs=outputs,
                view=source is not None and _share_storage(source.meta["val"], results),
                pointwise=torch.Tag.pointwise in operator.tags,
            )
        )

    def _arguments(self, operator: Any, node: torch.fx.Node) -> Mapping[str, Argument]:
        found = {}
        for index, parameter in enumerate(operator._schema.arguments):
            if parameter.name in ("device", "pin_memory"):
                continue
            if index < len(node.args):
                value = node.args[index]
            else:
                value = node.kwargs.get(parameter.name, parameter.default_value)
            if str(parameter.real_type) == "MemoryFormat" and type(value) is int:  # defaults are numbers in a schema
                value = _FORMATS[value]
            found[parameter.name] = self._argument(value)
        return found

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, torch.fx.Node):
            if value not in self._values:
                raise UntraceableError(f"an argument ({value.name}) is a number that depends on data")
            found = self._values[value]
            return Ref(found) if isinstance(found, str) else tuple(map(Ref, found))
        if isinstance(value, tuple | list):
            return tuple(self._argument(item) for item in value)
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
            return TorchConstant(str(value).removeprefix("torch."))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise UntraceableError(f"an argument is a {type(value).__name__}")


def _packed(leaves: Sequence[Any], spec: Any) -> Any:
    """The structure of arguments or results; leaves that are no plain values are tensors."""
    plain = [leaf if leaf is None or isinstance(leaf, bool | int | float | str) else _TENSOR for leaf in leaves]
    try:
        return pack(tree_unflatten(plain, spec), [])
    except Unpackable as error:
        raise UntraceableError(f"forward() takes or returns {error}") from None


def _elements(tensor: Any) -> tuple[float, ...]:
    if not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor) or tensor.numel() > _MOST_ELEMENTS:
        raise UntraceableError("forward() reads a large tensor that is no parameter, buffer or attribute of the model")
    return tuple(tensor.flatten().tolist())


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """A tensor without its data; raises UntraceableError for a shape that depends on data."""
    sizes = [*tensor.shape, *tensor.stride()]
    if not all(isinstance(size, int) for size in sizes):
        raise UntraceableError("the shape of a tensor depends on data")
    return TensorSpec(
        shape=tuple(tensor.shape), stride=tuple(tensor.stride()), dtype=str(tensor.dtype).removeprefix("torch.")
    )


def _share_storage(source: Any, results: Sequence[torch.Tensor]) -> bool:
    owners = {leaf.untyped_storage()._cdata for leaf in tree_leaves(source) if isinstance(leaf, torch.Tensor)}
    return all(result.untyped_storage()._cdata in owners for result in results)


def _needed(nodes: Sequence[Node], values: Sequence[str]) -> list[Node]:
    wanted, kept = set(values), []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.reads)
            kept.append(node)
    return kept[::-1]
