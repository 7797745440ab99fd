"""One candidate file: imported as a module, and its `ModelNew` built with the reference's weights."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.jit._script import RecursiveScriptModule

from kbevolve.evaluators.worker.precision import DTYPES

# Bound before any candidate is imported: patching torch later does not change it.
_detach = torch.Tensor.detach
#: People and models read this name in tracebacks and compiler messages.
FILE_NAME = "candidate.py"
#: Characters of an exception's text that are sent: a compiler's log can be megabytes, and its first errors matter.
_MOST_TEXT = 200_000
#: Causes of an exception that are followed.
_MOST_CAUSES = 20


class FormatError(Exception):
    """The file has no valid `ModelNew`."""


def import_candidate(source: str) -> ModuleType:
    """Write the source into the working directory, where Triton reads it again, and import it."""
    path = Path(FILE_NAME).resolve()
    path.write_text(source, encoding="utf-8", errors="surrogatepass")
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module


def build_model(
    module: ModuleType,
    arguments: Sequence[Any],
    *,
    seed: int,
    precision: str,
    device: torch.device,
    weights: dict[str, torch.Tensor],
) -> tuple[torch.nn.Module, bool]:
    """``ModelNew(*arguments)`` in evaluation mode with the reference's weights, and whether they were loaded by name.

    The weights are loaded when names and shapes agree exactly; otherwise only the seed determines them, as in
    KernelBench.

    Raises:
        FormatError: there is no class `ModelNew`, or it is no `torch.nn.Module`.
    """
    model_class = getattr(module, "ModelNew", None)
    if model_class is None:
        raise FormatError("the file defines no ModelNew; it must define class ModelNew(torch.nn.Module)")
    torch.manual_seed(seed)
    with torch.device(device):
        model = model_class(*arguments)
    if not isinstance(model, torch.nn.Module):
        raise FormatError("ModelNew is no torch.nn.Module; write class ModelNew(torch.nn.Module)")
    model = model.to(device=device, dtype=DTYPES[precision])
    loaded = {name: tensor.shape for name, tensor in state_of(model).items()} == {
        name: tensor.shape for name, tensor in weights.items()
    }
    if loaded:
        model.load_state_dict(weights)
    return model.eval(), loaded


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and the persistent buffers of a model, by name; none where one is a tensor of another class.

    As ``state_dict()``, which a candidate may override, as it may hooks, properties and `named_modules`: what is read
    or written here runs none of its code.
    """
    state: dict[str, torch.Tensor] = {}
    waiting: list[tuple[str, Any]] = [("", model)]
    while waiting:
        prefix, module = waiting.pop()
        if type(module) is RecursiveScriptModule:  # its own code is compiled, and its members are wrapped
            state |= {prefix + name: tensor for name, tensor in module.state_dict().items()}
            continue
        own = object.__getattribute__(module, "__dict__")
        for kind in ("_parameters", "_buffers"):
            for name, tensor in own.get(kind, {}).items():
                if tensor is None or (kind == "_buffers" and name in own["_non_persistent_buffers_set"]):
                    continue
                if type(tensor) not in (torch.nn.Parameter, torch.Tensor):
                    return {}
                state[prefix + name] = _detach(tensor)
        modules = own.get("_modules", {})
        waiting += [(f"{prefix}{name}.", inner) for name, inner in modules.items() if inner is not None]
    return state


def describe_error(error: BaseException) -> dict[str, Any]:
    """Type, text and the candidate's own frames of an exception, as plain values.

    The text ends with the error that caused it first: Triton names no reason for an error in a function that is called.
    """
    text, origin = _text(error), _origin(error)
    if origin is not error:
        text = f"{text[: _MOST_TEXT // 2]}\ncaused by {type(origin).__name__}: {_text(origin)[-_MOST_TEXT // 3 :]}"
    frames = [
        {"line": frame.lineno, "function": frame.name, "code": (frame.line or "").strip()[:200]}
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == FILE_NAME
    ]
    return {"type": type(error).__name__, "text": text[:_MOST_TEXT], "frames": frames[-3:]}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be shown)"


def _origin(error: BaseException) -> BaseException:
    """The first error of a chain of causes, as far as it is followed."""
    for _ in range(_MOST_CAUSES):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            break
        error = cause
    return error
