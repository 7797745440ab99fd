"""Triton compiles in the first call of a kernel: the worker leaves the device for that and returns afterwards."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from torch.utils import cpp_extension

from kbevolve.evaluators.worker.build_watch import BuildWatch
from kbevolve.evaluators.worker.channel import Channel, Message


class RecordingChannel(Channel):
    """Answers at once, and records messages and actions in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def send(self, message: Message, descriptors: Any = ()) -> None:
        self.events.append(message["phase"])

    def receive(self) -> tuple[Message, list[int]]:
        self.events.append("answered")
        return {"continue": True}, []


class Watched:
    """A watch over a stand-in for Triton."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, function: Any) -> None:
        for name in ("load", "load_inline", "_write_ninja_file_and_build_library"):
            monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))  # restored after the test
        jit = ModuleType("triton.runtime.jit")
        vars(jit)["JITFunction"] = function
        monkeypatch.setitem(sys.modules, "triton.runtime.jit", jit)
        self.channel = RecordingChannel()
        self.events = self.channel.events
        self.watch = BuildWatch(self.channel, lambda: self.events.append("synchronized"))
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
    log: list[str] = []
    function = new_function(log.append)
    watched = Watched(monkeypatch, function=function)
    assert function()._do_compile("right") == "right"
    assert watched.events == [*LEFT, *BACK]
    assert log == ["compiled"]


def test_an_error_returns_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autotuner continues with the next configuration, on the device."""
    function = new_function(lambda _: None)
    watched = Watched(monkeypatch, function=function)
    with pytest.raises(CompilationError) as error:
        function()._do_compile("wrong")
    assert watched.events == [*LEFT, *BACK]
    assert watched.watch.caused(error.value)


def old_function() -> Any:
    """Before Triton 3.4 there are hooks, and no such method."""
    return type("JITFunction", (), {"cache_hook": None, "compiled_hook": None})


def test_hooks_surround_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    function = old_function()
    watched = Watched(monkeypatch, function=function)
    assert not function.cache_hook(key="k", repr="f", already_compiled=False)
    assert not function.compiled_hook(key="k", repr="f", already_compiled=False)
    assert watched.events == [*LEFT, *BACK]


def test_with_hooks_the_reply_returns_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    function = old_function()
    watched = Watched(monkeypatch, function=function)
    for _ in range(2):  # the second compile begins without a report that the first one failed
        function.cache_hook(key="k")
    watched.watch.return_to_device()
    watched.watch.return_to_device()
    assert watched.events == [*LEFT, *BACK]


def test_a_triton_without_method_and_hooks_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, function=type("JITFunction", (), {}))
    watched.watch.return_to_device()
    assert not watched.events


def test_an_error_of_the_device_is_no_compiler_error(monkeypatch: pytest.MonkeyPatch) -> None:
    function = new_function(lambda _: None)
    watched = Watched(monkeypatch, function=function)

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(watched.watch, "_wait_for_device", broken)
    assert function()._do_compile("right") == "right"
