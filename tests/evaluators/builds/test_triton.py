"""Triton kernels that the judge compiles: what it accepts, and that each is compiled once."""

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import triton
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.builds.triton import TritonRequest
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import launch
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildResult, FailureReason
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message

KERNEL = {"ir": "module {}", "language": "TRITON", "options": {"num_warps": 4, "allowed": ["ieee"]}, "arch": 90}


class Compilers:
    """Stand-ins for processes that compile: each answers with what `reply` makes of the request."""

    def __init__(self) -> None:
        self.started = self.killed = 0
        self.failure: Exception | None = None
        self.unavailable: Exception | None = None
        self.reply: Message = {"ok": True, "product": base64.b64encode(b"machine code").decode()}
        self.begins = threading.Event()
        self.begins.set()
        self._lock = threading.Lock()

    def __call__(self) -> AbstractContextManager[Any]:
        if isinstance(self.unavailable, EvaluatorError):
            raise self.unavailable
        return self._process()

    @contextmanager
    def _process(self) -> Iterator[Any]:
        with self._lock:
            self.started += 1
        if isinstance(self.failure, EvaluatorError):
            raise self.failure
        try:
            self.begins.wait(10)
            yield self
        finally:
            self.killed += 1

    clock = 0.0

    def ask(self, request: Message, *, seconds: float) -> Message:
        if self.failure:
            raise self.failure
        return self.reply


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch) -> Compilers:
    monkeypatch.setattr(triton, "triton_version", lambda: "3.6.0")
    return Compilers()


@pytest.fixture
def pool(tmp_path: Path, compilers: Compilers) -> Iterator[BuildPool]:
    settings = EvaluationSettings()
    with closing(
        BuildPool(find_device("cpu"), settings, DiskCache(tmp_path), width=2, offer_compiler=compilers)
    ) as pool:
        yield pool


def built(pool: BuildPool, **changes: Any) -> BuildResult:
    return pool.builder({"triton": {**KERNEL, **changes}}, seconds=9).result()


def test_a_kernel_is_compiled_once_and_kept(pool: BuildPool, compilers: Compilers, tmp_path: Path) -> None:
    assert built(pool).product == b"machine code"
    again = pool.builder({"triton": KERNEL}, seconds=9)
    assert again.done()
    assert again.result().product == b"machine code"
    assert compilers.started == compilers.killed == 1
    settings = EvaluationSettings()
    with closing(BuildPool(find_device("cpu"), settings, DiskCache(tmp_path), offer_compiler=compilers)) as later:
        assert built(later).product == b"machine code"
    assert compilers.started == 1


@pytest.mark.parametrize(
    "changes", [{"ir": "module { }"}, {"language": "GLUON"}, {"options": {"num_warps": 8}}, {"arch": 100}]
)
def test_another_kernel_is_compiled_for_itself(pool: BuildPool, compilers: Compilers, changes: Message) -> None:
    built(pool)
    built(pool, **changes)
    assert compilers.started == 2


def test_equal_requests_at_once_are_one(pool: BuildPool, compilers: Compilers) -> None:
    compilers.begins.clear()
    futures = [pool.builder({"triton": KERNEL}, seconds=9) for _ in range(4)]
    compilers.begins.set()
    assert {future.result().product for future in futures} == {b"machine code"}
    assert compilers.started == 1


def test_a_damaged_product_is_compiled_again(pool: BuildPool, compilers: Compilers, tmp_path: Path) -> None:
    built(pool)
    for path in (tmp_path / "builds" / "product").iterdir():
        path.write_bytes(b"another's")
    assert built(pool).product == b"machine code"
    assert compilers.started == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"ir": b"module {}".hex().encode().decode() * 1_000_000},
        {"ir": 1},
        {"language": "C"},
        {"arch": "90"},
        {"options": []},
        {"options": {"num_warps": {"a": 1}}},
        {"options": {"../x": 1}},
        {"options": {"name": "x" * 20_000}},
        {"options": {"libs": [["a", "b"]]}},
    ],
)
def test_what_is_no_kernel_is_left_to_the_worker(pool: BuildPool, compilers: Compilers, changes: Message) -> None:
    with pytest.raises(BuilderUnavailable):
        built(pool, **changes)
    assert not compilers.started


def test_an_error_is_told_to_the_worker_and_its_process_ends(pool: BuildPool, compilers: Compilers) -> None:
    compilers.reply = {"ok": False, "text": "PassManager::run failed"}
    found = built(pool)
    assert found.product is None
    assert found.log == "PassManager::run failed"
    assert compilers.killed == 1


@pytest.mark.parametrize("reply", [{}, {"ok": True}, {"ok": True, "product": "no base64!"}, {"ok": True, "product": 1}])
def test_a_reply_that_cannot_be_read_gives_nothing(pool: BuildPool, compilers: Compilers, reply: Message) -> None:
    compilers.reply = reply
    assert built(pool).product is None
    assert compilers.killed == 1


def test_time_is_limited(pool: BuildPool, compilers: Compilers) -> None:
    compilers.failure = Rejection(Verdict.TIMED_OUT, "stopped after 9 s")
    found = built(pool)
    assert found.product is None
    assert found.why is FailureReason.TIME
    compilers.failure = None
    assert built(pool).product == b"machine code"  # a failure of the machine is not kept


def test_where_no_process_starts_workers_compile(pool: BuildPool, compilers: Compilers) -> None:
    compilers.failure = EvaluatorError("processes cannot be forked here")
    with pytest.raises(BuilderUnavailable, match="forked"):
        built(pool)


def test_a_thread_with_the_device_to_itself_is_offered_no_process(pool: BuildPool, compilers: Compilers) -> None:
    compilers.unavailable = EvaluatorError("no process compiles for this worker")
    with pytest.raises(BuilderUnavailable, match="no process"):
        pool.builder({"triton": KERNEL}, seconds=9)
    compilers.unavailable = None
    assert built(pool).product == b"machine code"
    compilers.unavailable = EvaluatorError("no process compiles for this worker")
    assert built(pool).product == b"machine code"  # what is known needs none


def test_a_pool_without_compilers_leaves_it_to_the_worker(tmp_path: Path, compilers: Compilers) -> None:
    pool = BuildPool(find_device("cpu"), EvaluationSettings(), DiskCache(tmp_path))
    with closing(pool), pytest.raises(BuilderUnavailable):
        built(pool)


def test_without_triton_nothing_is_named() -> None:
    if triton.importlib.util.find_spec("triton") is not None:
        pytest.skip("Triton is installed")
    with pytest.raises(BuilderUnavailable, match="not installed"):
        TritonRequest.from_json(KERNEL).key()


def test_requests_from_many_threads_share_their_processes(pool: BuildPool, compilers: Compilers) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: built(pool, arch=80 + number % 2).product, range(16)))
    assert set(found) == {b"machine code"}
    assert compilers.started == compilers.killed == 2


@pytest.mark.skipif(triton.importlib.util.find_spec("triton") is not None, reason="tests/gpu has it with Triton")
def test_a_confined_process_answers_and_ends() -> None:
    device = find_device("cpu")
    server = launch.open_fork_server(device)
    if server is None:
        pytest.skip("workers cannot be forked here")
    with closing(server):
        worker = Worker(device, server, compiles=True)
        try:
            worker.wait_attached()
            assert worker.sandbox
            reply = worker.ask({"request": "compile", "triton": KERNEL}, seconds=30)
            assert reply == {"ok": False, "text": "ModuleNotFoundError: No module named 'triton'"}
            with pytest.raises(Rejection):  # it compiles one kernel
                worker.ask({"request": "compile", "triton": KERNEL}, seconds=30)
        finally:
            worker.kill()
