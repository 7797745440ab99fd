"""Workers are kept warm, replaced when they die, and start without disturbing a kernel that is timed."""

import os
import signal
import threading
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import bubblewrap, launch, worker_pool
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from kbevolve.evaluators.worker import landlock
from tests.evaluators.sandbox.run_in_worker import KERNEL, run_in_worker

CPU = find_device("cpu")
#: Seconds after which a test gives up waiting.
TIMEOUT = 20.0

pytestmark = pytest.mark.skipif(
    bubblewrap.obstacle("cpu") is None and not landlock.usable(), reason="each worker needs its own bubblewrap here"
)


@pytest.mark.slow
def test_a_dead_fork_server_is_reported_and_replaced() -> None:
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool:
        pool.take().kill()
        for spare in list(pool._spares[0]):
            spare.result()
        dead = pool._fork_servers.living()
        assert dead is not None
        os.killpg(dead._process.pid, signal.SIGKILL)
        dead._process.wait()
        with pytest.raises(EvaluatorError, match="did not start"):
            Worker(CPU, dead)
        for _ in range(3):  # spares of the dead server died with it, which shows when they are used
            worker = pool.take()
            try:
                if worker.ask({"request": "import", "source": KERNEL}, seconds=10)["ok"]:
                    break
            except Rejection:
                continue
            finally:
                worker.kill()
        else:
            pytest.fail("no living worker after three")
        assert pool._fork_servers.living() is not dead
        assert not dead.directory.exists()


@pytest.mark.slow
def test_only_workers_for_one_stream_have_few_connections() -> None:
    source = "import os\nprint(os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS', 'all'))\n"
    with closing(WorkerPool(CPU, DeviceGate(CPU), connections=2)) as pool:
        for one_stream, expected in ((True, "2"), (False, "all"), (True, "2"), (False, "all")):
            worker = pool.take(one_stream=one_stream)
            try:
                assert run_in_worker(worker, source) == expected
            finally:
                worker.kill()
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool:
        worker = pool.take(one_stream=True)
        try:
            assert run_in_worker(worker, source) == "all"
        finally:
            worker.kill()


@pytest.mark.slow
def test_the_next_worker_has_what_triton_compiled_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    wait_ready = Worker.wait_ready

    def building(self: Worker) -> None:
        wait_ready(self)
        library = self.triton_cache / "AB12" / "cuda_utils.so"
        found.append(library.exists())
        library.parent.mkdir(parents=True, exist_ok=True)
        library.touch()

    monkeypatch.setattr(Worker, "wait_ready", building)
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool:
        taken = [pool.take()]
        (taken[0].triton_cache / "AB12" / "of a candidate.so").touch()
        taken += [pool.take(), pool.take()]  # the second may have been started before the first was ready
        try:
            assert [path.name for path in (taken[2].triton_cache / "AB12").iterdir()] == ["cuda_utils.so"]
        finally:
            for worker in taken:
                worker.kill()
        kept = pool._built
    assert found[0] is False
    assert True in found
    assert not kept.exists()


@dataclass(eq=False)
class Starting:
    """A worker that attaches and warms up when the test lets it."""

    attached: threading.Semaphore
    warm: threading.Semaphore
    #: What all of them did, in order.
    log: list[str]
    triton_cache: Path
    alive: bool = True
    has_inductor: bool = False

    def wait_attached(self) -> None:
        assert self.attached.acquire(timeout=TIMEOUT)
        self.log.append("attached")

    def wait_ready(self) -> None:
        self.log.append("warming")
        assert self.warm.acquire(timeout=TIMEOUT)
        self.log.append("warm")

    def pause(self, *, wait: bool = True) -> None:
        self.log.append("wait until stopped" if wait else "stop")

    def resume(self) -> None:
        self.log.append("resume")

    def end(self) -> None:
        self.warm.release()

    def kill(self) -> None:
        pass


def test_on_a_gpu_workers_attach_during_a_measurement_and_few_warm_up_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    attached, warm, log = threading.Semaphore(0), threading.Semaphore(0), list[str]()
    monkeypatch.setattr(worker_pool, "Worker", lambda *_, **__: Starting(attached, warm, log, tmp_path / "none"))
    monkeypatch.setattr(worker_pool, "_affordable", lambda device: 5)
    monkeypatch.setattr(launch, "open_fork_server", lambda device, **_: None)
    gpu, gate = replace(CPU, type="cuda", index=7), DeviceGate(CPU)

    def seen(word: str, count: int) -> bool:
        deadline = time.monotonic() + TIMEOUT
        while log.count(word) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return log.count(word) == count

    with gate.exclusive(), closing(WorkerPool(gpu, gate, spares=5)) as pool:
        assert not log, "a worker that only attaches is not paused"
        attached.release(6)
        assert seen("attached", 5)
        assert seen("warming", worker_pool._MOST_WARMING)
        assert log.count("stop") == worker_pool._MOST_WARMING, "they are paused until this thread leaves the gate"
        warm.release(6)
        assert seen("warm", 5)
        assert pool.take().alive


@dataclass(eq=False)
class Server:
    """A fork server that is ready when the test says so."""

    inductor: bool
    is_ready: bool = False
    alive: bool = True

    def close(self) -> None:
        pass


def test_on_a_gpu_most_spares_wait_for_inductor_and_kernels_take_those_that_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready, started, servers = threading.Semaphore(1000), list[Starting](), dict[bool, Server]()

    def open_one(device: object, *, inductor: bool = False) -> Server:
        return servers.setdefault(inductor, Server(inductor))

    def start(device: object, server: Server, **_: object) -> Starting:
        started.append(Starting(ready, ready, [], tmp_path / "none", has_inductor=server.inductor))
        return started[-1]

    monkeypatch.setattr(launch, "open_fork_server", open_one)
    monkeypatch.setattr(worker_pool, "Worker", start)
    monkeypatch.setattr(worker_pool, "_affordable", lambda device: 9)

    def seen(count: int) -> bool:
        deadline = time.monotonic() + TIMEOUT
        while len(started) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return len(started) == count

    gpu, gate = replace(CPU, type="cuda", index=7), DeviceGate(CPU)
    with closing(WorkerPool(gpu, gate, spares=9)) as pool:
        assert seen(5), "four for the first kernels, and one for the reference"
        first = pool.take()
        assert not first.has_inductor
        servers[True].is_ready = True
        assert seen(10)
        assert [worker.has_inductor for worker in started] == [False] * 5 + [True] * 5
        deadline = time.monotonic() + TIMEOUT
        while sum(map(worker_pool._readiness, pool._spares[0])) < 4 + 2 * 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        # The first of them is older than all that have Inductor.
        assert all(pool.take().has_inductor for _ in range(5))


@pytest.mark.slow
def test_where_forks_fail_workers_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []
    wait_ready = Worker.wait_ready
    with_server: set[Worker] = set()
    begin = Worker.__init__

    def noted(self: Worker, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        if arguments[1] is not None:
            with_server.add(self)

    def fail_forked(self: Worker) -> None:
        forked = self in with_server
        started.append(forked)
        if forked:
            self.kill()
            raise EvaluatorError("no CUDA in a fork")
        wait_ready(self)

    monkeypatch.setattr(Worker, "__init__", noted)
    monkeypatch.setattr(Worker, "wait_ready", fail_forked)
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool:
        for _ in range(2):
            for spare in list(pool._spares[0]):  # else the third may begin before the second has failed
                spare.result()
            worker = pool.take()
            assert worker.alive
            worker.kill()
    # Two failures in a row end the forks: the first two workers try one, and all later ones are started.
    assert started.count(True) == 2
    assert not started[-1]
