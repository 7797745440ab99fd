"""Triton's stages in a worker: the judge's product instead of them, or they themselves, beside other kernels."""

import json
import os
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch.utils import cpp_extension

from kbevolve.evaluators.worker.build_watch import BuildWatch
from kbevolve.evaluators.worker.channel import Channel, Message

TEXT = "module { tt.func @add() }"
#: What the judge's compiler makes of it, as `triton_compiler.compiled` packs it.
PRODUCT = zlib.compress(
    json.dumps(
        {"metadata": {"shared": 9}, "texts": {"ttir": "judge's", "ptx": "judge's"}, "binaries": {"cubin": "ARE="}}
    ).encode()
)
MADE_BY_JUDGE = {"ttir": "judge's", "ptx": "judge's", "cubin": b"\x01\x11"}
MADE_HERE = {"ttir": f"ttir of {TEXT}", "ptx": f"ptx of ttir of {TEXT}", "cubin": f"cubin of ptx of ttir of {TEXT}"}


class Language(Enum):
    TRITON = 0


class KernelText:
    """A kernel's module before any stage."""

    def str_nodebug(self) -> str:
        return TEXT

    def __str__(self) -> str:
        return TEXT


@dataclass
class Options:
    """As Triton's for CUDA."""

    num_warps: int = 4
    allowed: tuple[str, ...] = ("tf32", "ieee")
    extern_libs: tuple[tuple[str, str], ...] = (("libdevice", "libdevice.bc"),)
    debug: bool = False
    ptx_options: str | None = None


class Judge(Channel):
    """The other end: records what it receives and answers a build with `answer`."""

    def __init__(self, answer: Message) -> None:
        self.answer = answer
        self.received: list[Message] = []

    def send(self, message: Message, descriptors: Any = ()) -> None:
        self.received.append(json.loads(json.dumps(message)))

    def receive(self) -> tuple[Message, list[int]]:
        if "build" not in self.received[-1]:
            return {"continue": True}, []
        if "built" not in self.answer:
            return self.answer, []
        reader, writer = os.pipe()
        os.write(writer, PRODUCT)
        os.close(writer)
        return self.answer, [reader]

    @property
    def events(self) -> list[str]:
        """What was reported, and what was asked for."""
        return ["asked" if "build" in message else message["phase"] for message in self.received]


Compile = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for Triton with three stages."""
    for name in ("load", "load_inline", "_write_ninja_file_and_build_library"):
        monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))  # restored after the test

    class CUDABackend:
        target = SimpleNamespace(arch=90)

        def add_stages(self, stages: dict[str, Any], options: Options, language: Language) -> None:
            for name in ("ttir", "ptx", "cubin"):
                stages[name] = lambda text, metadata, name=name: metadata.update(stage=name) or f"{name} of {text}"

    modules = {
        "triton": {"knobs": SimpleNamespace(runtime=SimpleNamespace(add_stages_inspection_hook=None))},
        "triton._C": {},
        "triton._C.libtriton": {"get_cache_invalidating_env_vars": dict},
        "triton.backends.nvidia.compiler": {"CUDABackend": CUDABackend},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return CUDABackend()


def compiled(backend: Any, options: Options | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of all stages and the metadata, as Triton's own loop makes them."""
    stages: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    backend.add_stages(stages, options or Options(), Language.TRITON)
    module: Any = KernelText()
    made = {}
    for name, stage in stages.items():
        module = made[name] = stage(module, metadata)
    return made, metadata


def watch(answer: Message) -> Judge:
    judge = Judge(answer)
    BuildWatch(judge, lambda: None).watch_triton()
    return judge


def test_the_judge_compiles_what_the_worker_asks_for(backend: Any) -> None:
    judge = watch({"built": True})
    made, metadata = compiled(backend)
    assert made == MADE_BY_JUDGE
    assert metadata == {"shared": 9}
    assert judge.events == ["asked"]  # and the worker stays on the device
    options = {"num_warps": 4, "allowed": ["tf32", "ieee"], "debug": False, "ptx_options": None}
    wanted = {"ir": TEXT, "language": "TRITON", "options": options, "arch": 90}
    assert judge.received[0]["build"] == {"triton": wanted}


def test_without_a_builder_the_worker_compiles_and_returns(backend: Any) -> None:
    judge = watch({"continue": True})
    made, metadata = compiled(backend)
    assert made == MADE_HERE
    assert metadata == {"stage": "cubin"}
    assert judge.events == ["asked", "loading"]


def test_what_the_judge_cannot_compile_fails_here_with_tritons_own_error(backend: Any) -> None:
    def failing(self: Any, stages: dict[str, Any], options: Any, language: Any) -> None:
        def fail(text: str, metadata: Any) -> str:
            raise RuntimeError("PassManager::run failed")

        stages["ttir"] = fail

    type(backend).add_stages = failing
    judge = watch({"failed": "RuntimeError: in another process"})
    with pytest.raises(RuntimeError, match="PassManager"):
        compiled(backend)
    assert judge.events == ["asked", "building", "loading"]


@pytest.mark.parametrize(
    "options", [Options(debug=True), Options(ptx_options="-O0"), Options(extern_libs=(("mine", "mine.bc"),))]
)
def test_options_of_its_own_are_not_sent(backend: Any, options: Options) -> None:
    judge = watch({"built": True})
    made, _ = compiled(backend, options)
    assert made == MADE_HERE
    assert judge.events == ["building", "loading"]


def test_passes_of_its_own_are_not_sent(backend: Any) -> None:
    judge = watch({"built": True})
    sys.modules["triton"].knobs.runtime.add_stages_inspection_hook = lambda *_: None
    assert compiled(backend)[0] == MADE_HERE
    assert judge.events == ["building", "loading"]


def test_threads_compile_side_by_side_without_the_judge(backend: Any) -> None:
    judge = watch({"built": True})
    with ThreadPoolExecutor(2) as threads:
        for made, _ in threads.map(lambda _: compiled(backend), range(4)):
            assert made == MADE_HERE
    assert not judge.received


def test_another_interface_of_triton_is_only_watched(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(self: Any, stages: dict[str, Any], options: Any) -> None:
        stages["ttir"] = lambda text, metadata: f"ttir of {text}"

    monkeypatch.setattr(type(backend), "add_stages", old)
    watch({"built": True})
    assert type(backend).add_stages is old
