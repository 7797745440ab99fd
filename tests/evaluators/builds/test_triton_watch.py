"""Triton compiles in a kernel's first call: the worker leaves the device before, and waits for it afterwards."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch.utils import cpp_extension

from kbevolve.evaluators.worker.builds import BuildWatch
from kbevolve.evaluators.worker.channel import Channel, Message


class Conversation(Channel):
    """Answers everything at once, and keeps what was said and done in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def send(self, message: Message, descriptors: Any = ()) -> None:
        self.events.append(message["phase"])

    def receive(self) -> tuple[Message, list[int]]:
        self.events.append("answered")
        return {"go": True}, []


class Watched:
    """A watch over a Triton made of a few lines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, function: Any, runtime: Any = None) -> None:
        for name in ("load", "load_inline", "_write_ninja_file_and_build_library"):
            monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))  # to be put back
        jit, knobs = ModuleType("triton.runtime.jit"), ModuleType("triton.knobs")
        vars(jit)["JITFunction"] = function
        monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
        if runtime is not None:
            vars(knobs)["runtime"] = runtime
            monkeypatch.setitem(sys.modules, "triton.knobs", knobs)
        self.conversation = Conversation()
        self.events = self.conversation.events
        self.watch = BuildWatch(self.conversation, lambda: self.events.append("synchronized"))
        self.watch.watch_triton()


class CompilationError(Exception):
    """As Triton's."""


LEFT = ["synchronized", "building", "answered"]
BACK = ["loading", "answered"]


def new_function(events: Callable[[str], None]) -> type:
    """Triton 3.4 and newer: compiling is a method."""

    class JITFunction:
        def _do_compile(self, key: str) -> str:
            events("compiled")
            if key == "wrong":
                raise CompilationError("no such name")
            return key

    return JITFunction


def test_compiling_is_surrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    function = new_function(said.append)
    watched = Watched(monkeypatch, function=function)
    assert function()._do_compile("right") == "right"
    assert watched.events == [*LEFT, *BACK]
    assert said == ["compiled"]


def test_an_error_brings_it_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autotuner goes on with the next configuration, on the device."""
    function = new_function(lambda _: None)
    watched = Watched(monkeypatch, function=function)
    with pytest.raises(CompilationError) as error:
        function()._do_compile("wrong")
    assert watched.events == [*LEFT, *BACK]
    assert watched.watch.caused(error.value)


def call_hooks(holder: Any, before: str, after: str) -> None:
    assert not getattr(holder, before)(key="k", repr="f", already_compiled=False)
    assert not getattr(holder, after)(key="k", repr="f", already_compiled=False)


@pytest.mark.parametrize("place", ["knobs", "class"])
def test_hooks_where_there_is_no_such_method(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    runtime = SimpleNamespace(jit_cache_hook=None, jit_post_compile_hook=None)
    old = type("JITFunction", (), {"cache_hook": None, "compiled_hook": None})
    if place == "knobs":
        watched = Watched(monkeypatch, function=type("JITFunction", (), {}), runtime=runtime)
        call_hooks(runtime, "jit_cache_hook", "jit_post_compile_hook")
    else:
        watched = Watched(monkeypatch, function=old)
        call_hooks(old, "cache_hook", "compiled_hook")
    assert watched.events == [*LEFT, *BACK]


def test_with_hooks_an_error_is_settled_with_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(jit_cache_hook=None, jit_post_compile_hook=None)
    watched = Watched(monkeypatch, function=type("JITFunction", (), {}), runtime=runtime)
    for _ in range(2):  # the second compile begins while nobody told that the first one failed
        runtime.jit_cache_hook(key="k")
    watched.watch.settle()
    watched.watch.settle()
    assert watched.events == [*LEFT, *BACK]


def test_a_triton_without_either_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, function=type("JITFunction", (), {}))
    watched.watch.settle()
    assert not watched.events


def test_a_device_that_failed_is_no_compilers_error(monkeypatch: pytest.MonkeyPatch) -> None:
    function = new_function(lambda _: None)
    watched = Watched(monkeypatch, function=function)

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(watched.watch, "_wait_for_device", broken)
    assert function()._do_compile("right") == "right"
