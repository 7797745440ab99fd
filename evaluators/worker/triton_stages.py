"""Lets the judge compile Triton's kernels.

The candidate's process makes a kernel's intermediate representation from its Python code. All that follows depends on
this text and on the options alone, so the judge may know it from another kernel file.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kbevolve.evaluators.worker.channel import Message
from kbevolve.evaluators.worker.triton_compiler import unpacked

#: Options with files or words for programs: such a kernel is compiled where it was written.
_OWN_OPTIONS = ("ir_override", "ptx_options", "debug", "instrumentation_mode")

#: Has a request compiled; None when this process must compile.
Ask = Callable[[Message], bytes | None]
#: Calls what it gets while no other kernel waits for this process.
Apart = Callable[[Callable[[], dict[str, Any]]], dict[str, Any]]


def replace_stages(ask: Ask, apart: Apart) -> bool:
    """Let `ask` compile what this process would; whether this version of Triton allows that.

    Before Triton is imported, or on another backend than CUDA's, nothing is replaced.
    """
    compiler: Any = sys.modules.get("triton.backends.nvidia.compiler")
    backend: Any = getattr(compiler, "CUDABackend", None)
    original = getattr(backend, "add_stages", None)
    if original is None or "language" not in inspect.signature(original).parameters:
        return False

    def add_stages(self: Any, stages: dict[str, Any], options: Any, language: Any) -> None:
        own: dict[str, Any] = {}
        original(self, own, options, language)
        made: dict[str, Any] = {}

        def first(module: Any, metadata: dict[str, Any]) -> Any:
            request = _request(self, module, options, language)
            product = None if request is None else ask(request)
            if product is None:
                made.update(apart(lambda: _compile_here(own, module, metadata)))
            else:
                found, added = unpacked(product)
                made.update(found)
                metadata.update(added)
            return made[next(iter(own))]

        def following(name: str) -> Callable[[Any, Any], Any]:
            return lambda _module, _metadata: made[name]

        for number, name in enumerate(own):
            stages[name] = following(name) if number else first

    backend.add_stages = add_stages
    return True


def _compile_here(own: Mapping[str, Any], module: Any, metadata: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for name, stage in own.items():
        module = made[name] = stage(module, metadata)
    return made


def _request(backend: Any, module: Any, options: Any, language: Any) -> Message | None:
    """What the judge compiles; None for a kernel with libraries, options or passes of its own."""
    from triton import knobs
    from triton._C.libtriton import get_cache_invalidating_env_vars

    fields = dict(options.__dict__)
    usual = fields.pop("extern_libs", None) == type(options)().extern_libs
    if not usual or any(fields.get(name) for name in _OWN_OPTIONS) or get_cache_invalidating_env_vars():
        return None
    if getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None:
        return None
    # Without the lines of the file, which differ between files with the same kernel.
    text = module.str_nodebug()
    return {"triton": {"ir": text, "language": language.name, "options": fields, "arch": backend.target.arch}}
