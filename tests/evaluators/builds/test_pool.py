"""The build pool builds each request once, with a limited number of compilers, and keeps the results."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import build_job, headers
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.headers import Headers
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.feedback.failures import compiler_excerpt
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, FailureReason
from tests.evaluators.builds.sources import BOMB, LIBRARY

CPU = find_device("cpu")


class CountedRuns:
    """Counts the calls of `build_job.run`, and how many run at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._run = build_job.run
        monkeypatch.setattr(build_job, "run", self)

    def __call__(self, command: tuple[str, ...], directory: Path, *given: Any, **others: Any) -> CompilerRun:
        with self._lock:
            self.commands.append(" ".join(command))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return self._run(command, directory, *given, **others)
        finally:
            with self._lock:
                self.at_once -= 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedRuns:
    return CountedRuns(monkeypatch)


def new_pool(directory: Path, *, builders: int = 2, seconds: float = 60) -> BuildPool:
    return BuildPool(CPU, EvaluationSettings(build_seconds=seconds), DiskCache(directory), width=builders)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BuildPool]:
    with closing(new_pool(tmp_path / "disk_cache")) as pool:
        yield pool


def request(text: str = LIBRARY, *, name: str = "twice", cflags: tuple[str, ...] = ()) -> BuildRequest:
    return BuildRequest(name=name, sources=(("main.cpp", text),), cflags=cflags)


def test_a_built_library_works(pool: BuildPool, tmp_path: Path) -> None:
    built = pool.submit(request()).result()
    assert built.product is not None
    assert built.seconds > 0
    library = tmp_path / "twice.so"
    library.write_bytes(built.product)
    assert ctypes.CDLL(str(library)).twice(21) == 42


def test_equal_requests_at_once_are_one_build(pool: BuildPool, counted: CountedRuns) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: pool.submit(request()).result(), range(4)))
    assert len({known.product for known in found if known.product is not None}) == 1
    assert len(counted.commands) == 2, counted.commands  # one object, one link


def test_an_object_is_shared_between_extensions(pool: BuildPool, counted: CountedRuns) -> None:
    second = ("second.cpp", "int other() { return 1; }")
    pool.submit(BuildRequest(name="twice", sources=(("main.cpp", LIBRARY), second))).result()
    before = len(counted.commands)
    pool.submit(BuildRequest(name="twice", sources=(("main.cpp", LIBRARY.replace("2 *", "3 *")), second))).result()
    assert before == 3
    assert len(counted.commands) - before == 2  # the changed object and the link


@pytest.mark.slow
def test_no_more_compilers_at_once_than_the_width(tmp_path: Path, counted: CountedRuns) -> None:
    with closing(new_pool(tmp_path, builders=2)) as pool, ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda number: pool.submit(request(f"{LIBRARY}// {number}")).result(), range(6)))
    assert counted.most_at_once == 2


def test_a_failure_shows_the_line_and_is_kept(pool: BuildPool, counted: CountedRuns) -> None:
    broken = LIBRARY + "int wrong( { return 0; }\n"
    failure = pool.submit(request(broken)).result()
    assert failure.product is None
    assert failure.why is FailureReason.ERROR
    excerpt = compiler_excerpt(failure.log, broken)
    assert "main.cpp:2" in excerpt
    assert "int wrong( { return 0; }" in excerpt
    count = len(counted.commands)
    again = pool.submit(request(broken)).result()
    assert again.product is None
    assert (again.log, again.seconds) == (failure.log, 0.0)
    assert len(counted.commands) == count


def test_a_missing_library_is_a_failure_and_an_undefined_symbol_is_not(pool: BuildPool) -> None:
    failure = pool.submit(request('extern "C" int gone(); int f() { return gone(); }', cflags=())).result()
    assert failure.product is not None  # found when the library is loaded, as with torch's builder
    failure = pool.submit(
        BuildRequest(name="x", sources=(("main.cpp", LIBRARY),), ldflags=("-lno-such-library",))
    ).result()
    assert failure.product is None
    assert "no-such-library" in failure.log


@pytest.mark.parametrize("text", [BOMB, '#include "/dev/zero"\n'], ids=["templates", "endless include"])
@pytest.mark.slow
def test_an_endless_build_is_stopped_and_not_kept(tmp_path: Path, counted: CountedRuns, text: str) -> None:
    with closing(new_pool(tmp_path, seconds=1.0)) as pool:
        began = time.monotonic()
        other = pool.submit(request(), seconds=60)
        for _ in range(2):
            failure = pool.submit(request(text)).result()
            assert failure.product is None
            assert failure.why in (FailureReason.TIME, FailureReason.MEMORY)
        assert other.result().product is not None, "another build must not suffer"
        assert time.monotonic() - began < 10
    assert len(counted.commands) == 4


def build_there(directory: Path) -> bytes:
    """Runs in another process: another pool with the same disk cache."""
    with closing(new_pool(directory)) as pool:
        built = pool.submit(request()).result()
        assert built.product is not None
        return built.product


@pytest.mark.slow
def test_another_process_shares_the_cache(pool: BuildPool, counted: CountedRuns, tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as host:
        there = host.submit(build_there, tmp_path / "disk_cache").result()
    known = pool.submit(request()).result()
    assert known.product == there
    assert known.seconds == 0.0
    assert not counted.commands


def test_a_closed_pool_accepts_no_requests(tmp_path: Path) -> None:
    pool = new_pool(tmp_path)
    pool.close()
    with pytest.raises(BuilderUnavailable, match="closed"):
        pool.builder({"name": "twice", "sources": [["main.cpp", LIBRARY]]}, seconds=10)


def test_closing_ends_compilers_and_answers_all_requests(tmp_path: Path) -> None:
    pool = new_pool(tmp_path, builders=1)
    bomb = {"sources": [["main.cpp", BOMB]], "name": "bomb"}
    waiting = [pool.builder({**bomb, "name": f"bomb{number}"}, seconds=60) for number in range(3)]
    time.sleep(0.5)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 5
    for future in waiting:
        with contextlib.suppress(CancelledError):
            assert future.result(timeout=1).why is FailureReason.TIME
    pool.close()


@pytest.mark.usefixtures("own_locks")
def test_no_kernel_is_timed_while_a_header_is_precompiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, timed = threading.Event(), threading.Event(), threading.Event()

    def precompile(*_: object, **__: object) -> bool:
        begun.set()
        return may_end.wait(20)

    def time_alone() -> None:
        with gate.exclusive():
            timed.set()

    monkeypatch.setattr(Headers, "precompile", precompile)
    gate = DeviceGate(CPU)
    with closing(
        BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path), width=2, while_precompiling=gate.shared)
    ) as pool:
        pool._precompile("header", ("c++",))
        assert begun.wait(10)
        alone = threading.Thread(target=time_alone)
        alone.start()
        assert pool.submit(request()).result().product is not None
        assert not timed.is_set(), "timed while a compiler runs"
        may_end.set()
        assert timed.wait(10)
        alone.join()


@pytest.mark.parametrize(("architecture", "nice"), [("9.0a", 10), ("", 0)])
def test_compilers_yield_to_timing_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, nice: int
) -> None:
    seen = []

    def run(command: Sequence[str], directory: Path, *_: object, **how: Any) -> CompilerRun:
        seen.append(how["nice"])
        return CompilerRun(code=1, log="error: no", seconds=0.0)

    for module in (build_job, headers):
        monkeypatch.setattr(module, "run", run)
    twice = BuildRequest(name="twice", sources=(("main.cpp", LIBRARY),), architecture=architecture)
    with closing(BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path), width=1)) as pool:
        pool.architecture = architecture
        assert pool.submit(twice).result().product is None
        pool._precompile("header", ("c++",))
        pool._requests.shutdown()
    assert seen
    assert set(seen) == {nice}


def test_a_closed_pool_precompiles_nothing(tmp_path: Path) -> None:
    pool = BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path), width=1)
    pool.close()
    pool._precompile("header", ("c++",))


def test_a_build_whose_time_is_nearly_over_is_not_shared(tmp_path: Path) -> None:
    with closing(new_pool(tmp_path)) as pool:
        short, long = Future[Any](), Future[Any]()
        assert pool._once("key", 10, lambda: short) is short
        assert pool._once("key", 20, lambda: long) is short
        assert pool._once("key", 60, lambda: long) is long
        short.set_result(None)
        assert pool._once("key", 100, Future) is long, "the end of the other one changes nothing"
        long.set_result(None)
        assert pool._once("key", 1, lambda: short) is short
