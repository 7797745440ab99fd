"""The workers that a judge keeps ready."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool

CPU = find_device("cpu")


@pytest.mark.slow
def test_a_closed_pool_says_so() -> None:
    pool = WorkerPool(CPU, DeviceGate(CPU))
    pool.close()
    with pytest.raises(EvaluatorError, match="closed"):
        pool.take()


@pytest.mark.slow
def test_a_spare_that_was_killed_is_skipped() -> None:
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool:
        spare = pool._spares[0][0].result()
        spare.end()
        while spare.alive:
            time.sleep(0.01)
        worker = pool.take()
        assert worker is not spare
        assert worker.alive
        worker.kill()
        assert not worker.alive


@pytest.mark.parametrize(("cores", "kept"), [(1, 1), (4, 2), (8, 3)])
def test_as_many_are_kept_as_are_taken_at_once_where_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, kept: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    worker = SimpleNamespace(alive=True, has_inductor=False, kill=lambda: None)
    monkeypatch.setattr(WorkerPool, "_start", lambda _, number: worker)
    with closing(WorkerPool(CPU, DeviceGate(CPU), spares=3)) as pool:
        assert len(pool._spares[0]) == 1 + kept, "one for the reference"
        for _ in range(4):
            pool.take()
        assert len(pool._spares[0]) == kept
    with closing(WorkerPool(CPU, DeviceGate(CPU), spares=3, connections=1)) as pool:
        for _ in range(4):
            pool.take(one_stream=True)
            pool.take()
        assert (len(pool._spares[1]), len(pool._spares[0])) == (kept, 1), "few kernels use several streams"


@pytest.mark.slow
def test_workers_are_handed_out_once() -> None:
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool, ThreadPoolExecutor(3) as threads:
        taken = list(threads.map(lambda _: pool.take(), range(3)))
        try:
            assert len({worker.pid for worker in taken}) == 3
            assert os.getpid() not in {worker.pid for worker in taken}
        finally:
            for worker in taken:
                worker.kill()


@pytest.mark.slow
def test_two_threads_that_kill_a_worker_close_its_descriptors_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second close would hit a file that has the number by then."""
    with closing(WorkerPool(CPU, DeviceGate(CPU))) as pool, ThreadPoolExecutor(2) as threads:
        worker, closed = pool.take(), []
        real = worker._connection.close

        def close() -> None:
            closed.append(worker)
            real()
            time.sleep(0.1)

        monkeypatch.setattr(worker._connection, "close", close)
        list(threads.map(lambda _: worker.kill(), range(2)))
        assert closed == [worker]
