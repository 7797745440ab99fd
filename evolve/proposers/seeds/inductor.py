"""A program that writes Inductor's code as a ModelNew file.

``python -m kbevolve.evolve.proposers.seeds.inductor FOLDER DEVICE DTYPE [templates] [trace]``

It traces ``FOLDER/reference.py`` with torch.compile, takes the module that Inductor generates before compiling it, and
writes ``kernel.py`` with that module's kernels and a `ModelNew` that has the reference's constructor and calls them.
With ``templates`` it writes ``for_templates.py``, where each attention is one call, convolutions are of tensors as
they lie in memory and products with one column are sums, if there are any; and ``fused.py``, where products are one
call with what follows them (`fusion.py`), if anything does. With ``trace`` it writes the reference's graph,
``trace.json``, or why there is none, ``untraceable``. On failure it ends with status 1; the last line of stderr is the
reason, and files that were written before are good. It uses no device before its standard input is closed.

A program, not a function: it runs the user's file and imports torch and its compilers, which the search's process must
not do.
"""

import importlib.util
import json
import operator
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest import mock

from kbevolve.evaluators.worker.supervisor import die_with
from kbevolve.evolve.proposers.seeds.inductor_file import CannotWrapError, Capture, wrap

#: The files: what torch.compile generates, that for templates, and that with what follows a product in its call.
KERNEL, FOR_TEMPLATES, FUSED = "kernel.py", "for_templates.py", "fused.py"

#: A library's convolution in generated code.
CONVOLUTION = "extern_kernels.convolution("


class GeneratedError(Exception):
    """Stops Inductor as soon as its code is complete: the worker compiles it later."""


def captures(model: Any, inputs: list[Any], *, templates: bool = False) -> Iterator[tuple[str, Capture]]:
    """Trace a model and generate its code, without compiling it.

    Args:
        model: the module, in evaluation mode.
        inputs: of its forward.
        templates: whether the code is also wanted as templates need it: each attention as one operator,
            convolutions without the copies that turn tensors into a library's favourite layout, and products with one
            column as sums; and with what follows a product in its call.

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
        made.extend(torch.empty(0) for _ in outputs)
        return lambda *_: made

    made: list[torch.Tensor] = []
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
    results, places = [result] if single else result, {id(tensor): place for place, tensor in enumerate(made)}
    if any(id(one) not in places for one in results):
        raise CannotWrapError("the model returns a tensor that its graph does not compute, such as an input")
    held = {**_held(model, vars), **_held(model, operator.attrgetter("_buffers"))}
    common = Capture(
        code="",
        arguments=_on_the_device(arguments[0], model),
        outputs=len(made),
        returned=tuple(places[id(one)] for one in results),
        single=single,
        replaced={name: places[id(one)] for name, one in held.items() if id(one) in places},
    )

    def captured(code: str, before: str = "") -> Capture:
        return replace(common, code=code, before=before)

    yield KERNEL, captured(codes[0])
    if templates:
        with_convolutions = CONVOLUTION in codes[0]
        for name, code, before in _for_templates(*graphs[0], with_convolutions=with_convolutions):
            yield name, captured(code, before)


def _for_templates(graph: Any, inputs: list[Any], *, with_convolutions: bool) -> Iterator[tuple[str, str, str]]:
    """The files for templates: name, generated module, and what stands before it."""
    import torch

    from kbevolve.evolve.proposers.seeds.attention import with_attention
    from kbevolve.evolve.proposers.seeds.epilogues import text_of
    from kbevolve.evolve.proposers.seeds.fusion import with_epilogues
    from kbevolve.evolve.proposers.seeds.rows import with_rows
    from kbevolve.evolve.proposers.seeds.vectors import with_vectors

    with torch.no_grad():
        changed = None
        for change in (with_vectors, with_attention, with_rows):
            changed = change(changed or graph, inputs) or changed
        if changed is not None or with_convolutions:
            yield FOR_TEMPLATES, _generated(changed or graph, inputs, layout_optimization=False), ""
        if (fused := with_epilogues(changed or graph, inputs)) is not None:
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


def _held(model: Any, holder: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
    """What the parts of a model hold, by expressions such as "self.hidden"; `holder`: where a part holds it."""
    return {
        f"{_expression(path)}.{name}": value
        for path, part in model.named_modules()
        for name, value in holder(part).items()
    }


def _expression(path: str) -> str:
    """A part of a model in its `forward`, e.g. "self.layers._modules['0']" for "layers.0"."""
    parts = (f".{part}" if part.isidentifier() else f"._modules['{part}']" for part in path.split(".") if part)
    return "".join(("self", *parts))


def _on_the_device(arguments: tuple[str, ...], model: Any) -> tuple[str, ...]:
    """Arguments in which plain attributes follow an input, because `Module.to` leaves them where they are."""
    inputs, plain = [one for one in arguments if not one.startswith("self.")], _held(model, vars)
    return tuple(f"{one}.to({inputs[0]}.device)" if inputs and one in plain else one for one in arguments)


def _arguments(graph: Any) -> tuple[str, ...]:
    """Each input of the graph as an expression in `forward`."""
    expressions = []
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        source = node.meta["grapharg"].source.name
        # A method before PyTorch 2.9.
        text = source() if callable(source) else source
        text = re.sub(r"\b[LG]\['(\w+)'\]", r"\1", text).replace(".__dict__['_modules']", "._modules")
        text = re.sub(r"\._(?:modules|parameters|buffers)\['([A-Za-z_]\w*)'\]", r".\1", text)
        if not re.fullmatch(r"\w+(\.\w+|\[('\w+'|\d+)\])*", text):
            raise CannotWrapError(f"an input of the graph is {text}, not an argument, a parameter or a buffer")
        expressions.append(text)
    return tuple(expressions)


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
