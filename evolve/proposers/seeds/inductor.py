"""A program that writes Inductor's code as a ModelNew file.

``python -m kbevolve.evolve.proposers.seeds.inductor FOLDER DEVICE DTYPE [templates] [trace]``

It traces ``FOLDER/reference.py`` with torch.compile, takes the module that Inductor generates before compiling it, and
writes ``kernel.py`` with that module's kernels and a `ModelNew` that has the reference's constructor and calls them.
With ``templates`` it writes ``for_templates.py``, where each attention is one call and convolutions are of tensors as
they lie in memory, if there are any; and ``fused.py``, where products are one call with what follows them
(`fusion.py`), if anything does. With ``trace`` it writes the reference's graph, ``trace.json``, or
why there is none, ``untraceable``. On failure it ends with status 1; the last line of stderr is the reason, and files
that were written before are good. It uses no device before its standard input is closed.

A program, not a function: it runs the user's file and imports torch and its compilers, which the search's process must
not do.
"""

import ast
import importlib.util
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

from kbevolve.configs.reference import as_model_new, with_forward, without_head
from kbevolve.configs.templates import template
from kbevolve.evaluators.worker.supervisor import die_with
from kbevolve.evolve.proposers.seeds.inductor_text import defined, pruned

#: The files: what torch.compile generates, that for templates, and that with what follows a product in its call.
KERNEL, FOR_TEMPLATES, FUSED = "kernel.py", "for_templates.py", "fused.py"

#: A library's convolution in generated code.
_CONVOLUTION = "extern_kernels.convolution("
#: What launches kernels in generated code, what marks it as a GPU's, and how many launches are worth a CUDA graph.
_LAUNCH = re.compile(r"\.run\(|\bextern_kernels\.|\btorch\.ops\.")
_ON_GPU = "torch.cuda._DeviceGuard("
_MANY_LAUNCHES = 8

#: One thread: Inductor's default is a pool of compiler processes that would outlive the import.
_HEADER = '''\
"""What torch.compile (Inductor, PyTorch {version}) generates, called by a ModelNew."""

{future}import torch._inductor.config

torch._inductor.config.compile_threads = 1
{trust}
'''

#: Inductor compiles six small programs to test whether the compiler supports this CPU's vector instructions: 7 of the
#: 10 s that a first kernel takes to build on two cores (measured). Without that support this seed fails to build.
_TRUST = "torch._inductor.config.cpp.vec_isa_ok = True\n"


class GeneratedError(Exception):
    """Stops Inductor as soon as its code is complete: the worker compiles it later."""


class CannotWrapError(Exception):
    """The generated code does not work as a file of its own; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The result of torch.compile for one model."""

    #: The generated module.
    code: str
    #: The tensor for each argument of its `call`, in order, e.g. "self.gemm.weight" or "x".
    arguments: tuple[str, ...]
    #: Number of tensors that the graph returns.
    outputs: int
    #: Whether the model returns one tensor, not a tuple or list of them.
    single: bool
    #: What the module needs before it: the epilogues of its products.
    before: str = ""


def captures(model: Any, inputs: list[Any], *, templates: bool = False) -> Iterator[tuple[str, Capture]]:
    """Trace a model and generate its code, without compiling it.

    Args:
        model: the module, in evaluation mode.
        inputs: of its forward.
        templates: whether the code is also wanted as templates need it: each attention as one operator, and
            convolutions without the copies that turn tensors into a library's favourite layout; and with what follows
            a product in its call.

    Yields:
        The file for each, as soon as there is one: `KERNEL`, and those of `FOR_TEMPLATES` and `FUSED` that were wanted
        and differ.

    Raises:
        CannotWrapError: the result is not one tensor or a flat sequence of tensors.
        Exception: from torch.compile, e.g. for a graph break.
    """
    import torch

    codes: list[str] = []
    graphs: list[tuple[Any, list[Any]]] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append((graph, example_inputs))
        arguments.append(_arguments(graph))
        codes.append(_generated(graph, example_inputs))
        # Only the form of the result is needed, and a call of the graph would occupy the device.
        outputs: Any = graph.graph.output_node().args[0]
        return lambda *_: [torch.empty(0) for _ in outputs]

    arguments: list[tuple[str, ...]] = []
    # A module that warns, as instance norm does of some sizes, is no reason to break a graph.
    silent = torch._dynamo.config.patch(reorderable_logging_functions={warnings.warn})
    with torch.no_grad(), silent:
        compiled: Any = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
        result = compiled(*inputs)
    if len(graphs) != 1:
        raise CannotWrapError(f"the model became {len(graphs)} graphs, not one")
    single = isinstance(result, torch.Tensor)
    if not single and not (isinstance(result, list | tuple) and all(isinstance(one, torch.Tensor) for one in result)):
        raise CannotWrapError(f"the model returns a {type(result).__name__}, not tensors")
    outputs = 1 if single else len(result)

    def captured(code: str, before: str = "") -> Capture:
        return Capture(code=code, arguments=arguments[0], outputs=outputs, single=single, before=before)

    yield KERNEL, captured(codes[0])
    if templates:
        with_convolutions = _CONVOLUTION in codes[0]
        for name, code, before in _for_templates(*graphs[0], with_convolutions=with_convolutions):
            yield name, captured(code, before)


def _for_templates(graph: Any, inputs: list[Any], *, with_convolutions: bool) -> Iterator[tuple[str, str, str]]:
    """The files for templates: name, generated module, and what stands before it."""
    import torch

    from kbevolve.evolve.proposers.seeds.attention import with_attention
    from kbevolve.evolve.proposers.seeds.epilogues import text_of
    from kbevolve.evolve.proposers.seeds.fusion import with_epilogues

    with torch.no_grad():
        attending = with_attention(graph, inputs)
        if attending is not None or with_convolutions:
            yield FOR_TEMPLATES, _generated(attending or graph, inputs, layout_optimization=False), ""
        if (fused := with_epilogues(attending or graph, inputs)) is not None:
            yield FUSED, _generated(fused.graph, inputs, layout_optimization=False), text_of(fused.epilogues)


def _generated(graph: Any, inputs: list[Any], **options: bool) -> str:
    """The module that Inductor generates for a graph, with these options of its configuration."""
    import torch
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.graph import GraphLowering

    codes: list[str] = []

    def stop_with(code: str) -> NoReturn:
        codes.append(code)
        raise GeneratedError

    # The hook of PyTorch's own `run_and_get_code`. Without the cache, because cached graphs skip the hook.
    with (
        torch._inductor.config.patch(
            {"fx_graph_cache": False, "compile_threads": 1, "cpp.vec_isa_ok": True, **options}
        ),
        mock.patch.object(GraphLowering, "save_output_code", stop_with),
    ):
        try:
            compile_fx(graph, inputs)
        except Exception:
            if not codes:
                raise
    if len(codes) != 1:
        raise CannotWrapError(f"the model became {len(codes)} modules, not one")
    return codes[0]


def wrap(found: Capture, reference: str, *, version: str) -> str:
    """The kernel file: generated kernels, then `ModelNew` with the reference's constructor.

    Raises:
        CannotWrapError: the code needs constants or code outside its text, or its names clash with the reference's.
    """
    _check_signature(found)
    generated = pruned(found.code)
    future, model_new = without_head(as_model_new(reference))
    own, arguments = generated, f"[{', '.join(found.arguments)}]"
    call = f"call({arguments})"
    if _ON_GPU in generated and len(_LAUNCH.findall(generated)) >= _MANY_LAUNCHES:
        own += f"\n\n{template('graph_replay')}\n\nreplay = Replay(call)\n"
        inputs = [one for one in found.arguments if not one.startswith("self.")]
        call = f"replay({', '.join((arguments, *inputs))})"
    clash = defined(found.before + own) & defined(model_new)
    if clash:
        raise CannotWrapError(f"the reference and the generated code both define {', '.join(sorted(clash))}")
    # Parameters require gradients, and the generated code writes into its buffers with out=.
    result = f"return {call}[0]" if found.single else f"return {call}"
    model_new = with_forward(model_new, result, decorator="torch.no_grad()")
    trust = _TRUST if "async_compile.cpp" in generated else ""
    return f"{_HEADER.format(version=version, future=future, trust=trust)}{found.before}{own}\n\n{model_new}"


def _arguments(graph: Any) -> tuple[str, ...]:
    """Each input of the graph as an expression in `forward`."""
    expressions = []
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        source = node.meta["grapharg"].source.name
        # A method before PyTorch 2.9.
        text = source() if callable(source) else source
        text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text)
        text = re.sub(r"\._(?:modules|parameters|buffers)\['([A-Za-z_]\w*)'\]", r".\1", text)
        if not re.fullmatch(r"\w+(\.\w+|\[('\w+'|\d+)\])*", text):
            raise CannotWrapError(f"an input of the graph is {text}, not an argument, a parameter or a buffer")
        expressions.append(text)
    return tuple(expressions)


def _check_signature(found: Capture) -> None:
    """Check that the generated `call` takes and returns what the graph does, and needs nothing outside its text."""
    constant = re.search(r"^(_tensor_constant\w*|_frozen_param\w*|constant\d+|_torchbind\w*) = None", found.code, re.M)
    if constant:
        raise CannotWrapError(f"it keeps a constant tensor ({constant[1]}) outside its text")
    call = next(
        (node for node in ast.walk(ast.parse(found.code)) if isinstance(node, ast.FunctionDef) and node.name == "call"),
        None,
    )
    if call is None:
        raise CannotWrapError("the generated module has no call(args)")
    taken = [
        len(node.targets[0].elts)
        for node in call.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Name)
        and node.value.id == "args"
    ]
    returned = [
        len(node.value.elts)
        for node in ast.walk(call)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]
    if taken != [len(found.arguments)] or returned != [found.outputs]:
        # Additional results are inputs that it changed; torch.compile copies those back outside `call`.
        raise CannotWrapError(
            f"the generated call takes {taken} and returns {returned} tensors; "
            f"the model takes {len(found.arguments)} and returns {found.outputs}"
        )


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dynamo looks modules of traced code up by name.
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


def main(folder: Path, device_type: str, dtype_name: str, *, templates: bool, trace: bool) -> None:
    """Write the files for a reference, on ``"cpu"`` or ``"cuda"`` and in ``"float32"`` or another dtype."""
    if device_type == "cpu":
        sys.stdin.read()  # the judge measures on the cores that the imports would take
    import torch
    import torch._inductor.compile_fx

    if device_type != "cpu":
        sys.stdin.read()
    dtype = getattr(torch, dtype_name)
    text = (folder / "reference.py").read_text(encoding="utf-8")
    if trace:
        _trace(folder, text, dtype)
    torch.set_default_device(device_type)
    module = _load(folder / "reference.py")
    model = module.Model(*module.get_init_inputs()).to(device=device_type, dtype=dtype).eval()
    inputs = [
        value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in module.get_inputs()
    ]
    for name, found in captures(model, inputs, templates=templates):
        (folder / name).write_text(wrap(found, text, version=torch.__version__), encoding="utf-8")


def _trace(folder: Path, text: str, dtype: Any) -> None:
    """Write the reference's graph, or why it has none."""
    from kbevolve.evaluators.graph.__main__ import reason
    from kbevolve.evaluators.graph.trace_json import to_tree
    from kbevolve.evaluators.graph.tracer import trace_source

    try:
        (folder / "trace.json").write_text(json.dumps(to_tree(trace_source(text, dtype))), encoding="utf-8")
    except Exception as error:
        (folder / "untraceable").write_text(reason(error), encoding="utf-8")


if __name__ == "__main__":
    die_with(os.getppid())  # it may be paused when its parent dies
    try:
        wanted = sys.argv[4:]
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], templates="templates" in wanted, trace="trace" in wanted)
    except CannotWrapError as error:
        sys.exit(str(error))
    except Exception as error:
        # One line: PyTorch's messages go on with pages of advice.
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        sys.exit(f"{type(error).__name__}: {first}")
