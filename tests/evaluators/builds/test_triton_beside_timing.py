"""A worker that asks for a Triton kernel while another kernel is timed: no thread waits for ever, and nothing disturbs.

The processes are real. Without Triton theirs answer with an error, which takes the same way as a product.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import triton
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox import bubblewrap
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from kbevolve.evaluators.worker import landlock

pytestmark = pytest.mark.skipif(
    bubblewrap.obstacle("cpu") is None and not landlock.usable(), reason="each worker needs its own bubblewrap here"
)

CPU = find_device("cpu")
KERNEL = {"ir": "module {}", "language": "TRITON", "options": {}, "arch": 90}
#: Asks for a kernel, and prints the answer.
ASKING = f"""
import gc
from kbevolve.evaluators.worker.channel import Channel
channel = next(one for one in gc.get_objects() if isinstance(one, Channel))
channel.send({{"phase": "building", "build": {{"triton": {KERNEL}}}}})
print(sorted(channel.receive()[0]), flush=True)

class ModelNew: ...
"""


@dataclass
class Place:
    """The pools of a judge with one worker."""

    gate: DeviceGate
    workers: WorkerPool
    builds: BuildPool
    worker: Worker

    def ask(self) -> str:
        """Import the asking candidate beside other kernels; what it printed."""
        with self.gate.shared():
            self.worker.ask({"request": "import", "source": ASKING}, seconds=60)
        deadline = time.monotonic() + 5
        while not self.worker.printed and time.monotonic() < deadline:
            self.worker.check_holdings()
            time.sleep(0.02)
        return self.worker.printed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(triton, "triton_version", lambda: "3.6.0")
    gate = DeviceGate(CPU)
    with closing(WorkerPool(CPU, gate)) as workers:
        cache = DiskCache(tmp_path)
        with closing(BuildPool(CPU, EvaluationSettings(), cache, width=2, offer_compiler=workers.compiler)) as builds:
            worker = workers.take()
            worker.builder = builds.builder
            worker.while_compiling = partial(gate.released, worker)
            try:
                yield Place(gate, workers, builds, worker)
            finally:
                worker.kill()


def test_the_answer_comes(place: Place) -> None:
    assert "failed" in place.ask()


def test_a_compiler_waits_while_a_kernel_is_timed(place: Place) -> None:
    timing, timed = threading.Event(), threading.Event()
    order: list[str] = []

    def hold_alone() -> None:
        with place.gate.exclusive():
            timing.set()
            timed.wait(20)
            order.append("timed")

    with ThreadPoolExecutor(2) as threads:
        alone = threads.submit(hold_alone)
        assert timing.wait(20)

        def compile_one() -> None:
            with place.workers.compiler() as compiler:
                compiler.ask({"request": "compile", "triton": KERNEL}, seconds=60)
                order.append("compiles")

        compiling = threads.submit(compile_one)
        time.sleep(1.0)
        assert not order, "it is paused"
        timed.set()
        alone.result(20)
        compiling.result(60)
    assert order == ["timed", "compiles"]


def test_kernels_that_are_asked_for_beside_timings_all_get_answers(place: Place) -> None:
    ended = threading.Event()

    def time_kernels() -> int:
        count = 0
        while not ended.is_set():
            with place.gate.exclusive():
                time.sleep(0.01)
            count += 1
            time.sleep(0.005)
        return count

    with ThreadPoolExecutor(1) as threads:
        timings = threads.submit(time_kernels)
        try:
            assert "failed" in place.ask()
        finally:
            ended.set()
        assert timings.result(20) > 1


def test_a_thread_with_the_device_to_itself_waits_for_no_compiler(place: Place) -> None:
    with place.gate.exclusive(), pytest.raises(EvaluatorError, match="no process"):
        place.workers.compiler()
    with place.workers.compiler() as compiler:
        assert compiler.sandbox


def test_a_closed_pool_offers_none(place: Place) -> None:
    place.workers.close()
    with pytest.raises(EvaluatorError, match="no process"):
        place.workers.compiler()
