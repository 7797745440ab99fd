"""Real workers request builds from a pool, and load the libraries as torch would."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.feedback.failures import failure_of
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.build_protocol import BuildRefused, BuildResult
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message
from tests.evaluators.builds.sources import LIBRARY, MODULE

CPU = find_device("cpu")
MODEL = "\nclass ModelNew:\n    pass\n"
INLINE = f"""
from torch.utils.cpp_extension import load_inline
SOURCE = r'''{MODULE}'''
built = load_inline("three", SOURCE, no_implicit_headers=True)
assert built.three() == 3
assert built.__name__ == "three"
"""
LOAD = f"""
import ctypes, os
from torch.utils import cpp_extension
os.makedirs("folder")
with open("folder/twice.cpp", "w") as file:
    file.write(r'''{LIBRARY}''')
path = cpp_extension.load("twice", ["folder/twice.cpp"], is_python_module=False, extra_cflags=["-O3"])
assert path is None or path.endswith("twice.so"), path
where = path or os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "twice", "twice.so")
assert ctypes.CDLL(where).twice(21) == 42
"""
#: No request: it includes a file beside the source.
INCLUDING = LOAD.replace("twice", "beside").replace("int beside", "int twice").replace(").beside(", ").twice(")
INCLUDING = INCLUDING.replace("folder", "company").replace("r'''extern", "r'''#include \"two.h\"\nextern")
INCLUDING = INCLUDING.replace("with open", "open('company/two.h', 'w').write('#define TWO 2')\nwith open")


def named(name: str) -> str:
    """The inline extension under another name."""
    return INLINE.replace('load_inline("three"', f'load_inline("{name}"').replace('== "three"', f'== "{name}"')


class WorkerWithPool:
    """A worker with a build pool, and a record of its requests."""

    def __init__(self, pool: BuildPool, fork_server: ForkServer | None) -> None:
        self.pool = pool
        self.requests: list[Message] = []
        self.away: list[str] = []
        self.worker = Worker(CPU, fork_server)
        self.worker.wait_ready()
        self.worker.builder = self.build
        self.worker.while_compiling = self.leave

    def build(self, request: Message, *, seconds: float) -> Future[BuildResult]:
        self.requests.append(request)
        return self.pool.builder(request, seconds=seconds)

    @contextlib.contextmanager
    def leave(self) -> Iterator[None]:
        self.away.append("left")
        try:
            yield
        finally:
            self.away.append("back")

    def load(self, source: str, *, seconds: float = 30.0, build_seconds: float = 60.0) -> Message:
        request = {"request": "import", "source": source + MODEL}
        return self.worker.ask(request, seconds=seconds, build_seconds=build_seconds)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildPool]:
    with closing(BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path_factory.mktemp("disk_cache")))) as pool:
        yield pool


@pytest.fixture(scope="module")
def module_worker(pool: BuildPool, fork_server: ForkServer | None) -> Iterator[WorkerWithPool]:
    place = WorkerWithPool(pool, fork_server)
    yield place
    place.worker.kill()


@pytest.fixture
def shared(module_worker: WorkerWithPool) -> WorkerWithPool:
    """A worker for several tests, whose extensions have different names."""
    module_worker.requests.clear()
    module_worker.away.clear()
    module_worker.worker.built.clear()
    return module_worker


@pytest.fixture
def place(pool: BuildPool, fork_server: ForkServer | None) -> Iterator[WorkerWithPool]:
    """A worker for one test."""
    place = WorkerWithPool(pool, fork_server)
    yield place
    place.worker.kill()


def test_load_and_load_inline_use_the_pool(shared: WorkerWithPool) -> None:
    assert shared.load(INLINE + LOAD) == {"ok": True}, shared.worker.printed
    assert [request["name"] for request in shared.requests] == ["three", "twice"]
    assert shared.requests[1]["cflags"] == ["-O3"]
    assert shared.away == ["left", "back"] * 2
    assert [build.seconds > 0 for build in shared.worker.built] == [True, True]


def test_the_next_worker_finds_it_built(shared: WorkerWithPool, place: WorkerWithPool) -> None:
    source = named("again")
    for known, builder in enumerate((shared, place)):
        assert builder.load(source) == {"ok": True}
        assert (builder.worker.built[0].seconds == 0) is bool(known)


def test_other_sources_under_a_known_name_are_a_new_version(shared: WorkerWithPool) -> None:
    """As in torch: an imported module does not change."""
    source = named("version").replace("assert built.__name__", "assert True or built.__name__")
    assert shared.load(source) == {"ok": True}
    assert shared.load(source.replace("FromLong(3)", "FromLong(4)").replace("three() == 3", "three() == 4")) == {
        "ok": True
    }
    assert [request["name"] for request in shared.requests] == ["version", "version_v1"]


def test_an_error_looks_like_torchs_own(shared: WorkerWithPool) -> None:
    source = named("broken").replace("PyLong_FromLong(3)", "PyLong_FromLong(3")
    reply = shared.load(source)
    assert (reply["ok"], reply["stage"], reply["type"]) == (False, "build", "RuntimeError")
    assert reply["text"].startswith("Error building extension 'broken': ")
    verdict, message = failure_of(reply, source)
    assert verdict is Verdict.BUILD_FAILED
    assert "main.cpp:" in message
    assert "PyLong_FromLong(3;" in message
    assert "in your file:" in message
    assert shared.away == ["left", "back"]


def test_a_build_without_a_request_is_compiled_by_the_worker(shared: WorkerWithPool) -> None:
    assert shared.load(INCLUDING) == {"ok": True}, shared.worker.printed
    assert not shared.requests
    assert shared.away == ["left", "back"]


def test_a_refused_request_is_compiled_by_the_worker(shared: WorkerWithPool) -> None:
    source = LOAD.replace("twice", "refused").replace("int refused", "int twice").replace(").refused(", ").twice(")
    source = source.replace("folder", "other").replace('"-O3"', "\"-DX='(1)'\"")
    assert shared.load(source) == {"ok": True}, shared.worker.printed
    assert [request["name"] for request in shared.requests] == ["refused"]
    assert shared.away == ["left", "back"]


def test_a_request_that_torchs_builder_refuses_later_is_compiled_by_the_worker(place: WorkerWithPool) -> None:
    def refusing(request: Message, *, seconds: float) -> Future[BuildResult]:
        refused: Future[BuildResult] = Future()
        refused.set_exception(BuildRefused("torch's builder is unknown"))
        return refused

    place.worker.builder = refusing
    assert place.load(INLINE) == {"ok": True}, place.worker.printed
    assert place.worker.built_alone
    assert not place.worker.built
    assert place.away == ["left", "back"]


def test_with_a_changed_environment_the_worker_compiles(place: WorkerWithPool) -> None:
    assert place.load("import os\nos.environ['CPATH'] = '/usr/include'\n" + LOAD) == {"ok": True}
    assert not place.requests


def test_an_endless_build_is_stopped(place: WorkerWithPool) -> None:
    endless = LOAD.replace(LIBRARY, '#include "/dev/zero"\n')
    began = time.monotonic()
    with pytest.raises(Rejection) as stopped:
        place.load(endless, build_seconds=1.0)
    assert stopped.value.verdict is Verdict.TIMED_OUT
    assert "of compiling" in stopped.value.message
    assert time.monotonic() - began < 10
    assert place.away == ["left", "back"]


def test_waiting_counts_against_no_limit(place: WorkerWithPool) -> None:
    """Neither for a builder nor for the device; both take longer here than the limits."""

    def slow(request: Message, *, seconds: float) -> Future[BuildResult]:
        future = place.pool.builder(request, seconds=seconds)
        late: Future[BuildResult] = Future()
        future.add_done_callback(lambda done: (time.sleep(1.5), late.set_result(done.result())))
        return late

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        yield
        time.sleep(1.5)

    place.worker.builder, place.worker.while_compiling = slow, waiting
    place.worker.deadline = time.monotonic() + 2.5
    assert place.load(INLINE, seconds=2.0, build_seconds=2.0) == {"ok": True}
    assert place.worker.deadline > time.monotonic() + 0.5


@pytest.mark.parametrize(
    "messages",
    [
        '{"phase": "loading"}',
        '{"phase": "building", "build": {}}{"phase": "building", "build": {}}',
    ],
    ids=["loading before building", "building twice"],
)
def test_forged_phases_end_the_worker(place: WorkerWithPool, messages: str) -> None:
    """The candidate writes messages in its worker's name."""
    parts = messages.replace("}{", "}\n{").splitlines() if "}}{" in messages else [messages]
    forged = (
        "import os, time\n"
        "for descriptor in map(int, os.listdir('/proc/self/fd')):\n"
        "    if os.path.exists(f'/proc/self/fd/{descriptor}') or True:\n"
        "        try: name = os.readlink(f'/proc/self/fd/{descriptor}')\n"
        "        except OSError: continue\n"
        "        if name.startswith('socket:'):\n"
        f"            for part in {parts!r}:\n"
        "                os.write(descriptor, len(part).to_bytes(4, 'big') + part.encode())\n"
        "time.sleep(20)\n"
    )
    with pytest.raises(Rejection) as ended:
        place.load(forged)
    assert ended.value.verdict is Verdict.CRASHED
