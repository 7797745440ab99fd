"""A pool of workers: the next one is kept warm.

A worker serves one kernel and is killed. The next one starts while that kernel is judged, so that importing torch
and creating a CUDA context (1.3 s on a CPU, 3 to 5 s on a GPU) are paid beside the work and not before it.
"""

import contextlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.isolation import sandbox
from kbevolve.evaluators.isolation.worker_process import Worker

__all__ = ["Worker", "WorkerPool"]

#: Workers started at once at most (each holds 0.5 GB of a GPU), and cores for each of them.
_LARGEST_BATCH = 4
_CORES_PER_START = 4


class WorkerPool:
    """Workers for one device: each `take` hands over a warm one and sees to it that the next is starting."""

    def __init__(self, device: Device, *, first: int = 1) -> None:
        """Start the first workers; later ones start in batches, when the last spare is taken."""
        sandbox.sweep_directories()
        self._device = device
        # A worker dies with the *thread* that started it (PR_SET_PDEATHSIG); these threads live as long as the pool.
        self._starters = ThreadPoolExecutor(thread_name_prefix="kbevolve-worker-start")
        # Timing waits until all have started, so several at once cost hardly more than one, where there are the cores.
        self._batch = max(1, min(_LARGEST_BATCH, len(os.sched_getaffinity(0)) // _CORES_PER_START))
        self._spares: deque[Future[Worker]] = deque()
        self._starting: set[Worker] = set()
        self._closed = False
        for _ in range(first):
            self._start_next()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self) -> Worker:
        """A warm worker that never held a candidate; the caller kills it.

        Raises:
            EvaluatorError: workers do not start here.
        """
        if not self._spares:
            self._start_next()
        future = self._spares.popleft()
        if not self._spares:
            for _ in range(self._batch):
                self._start_next()
        return future.result()

    def settle(self) -> None:
        """Wait until no worker is starting, so that none disturbs what is timed next."""
        for future in self._spares:
            with contextlib.suppress(EvaluatorError):  # reported by the `take` that gets it
                future.result()

    def close(self) -> None:
        """Kill all spares, those that are starting too."""
        self._closed = True
        for worker in tuple(self._starting):
            worker.end()
        for future in self._spares:
            with contextlib.suppress(EvaluatorError):
                future.result().kill()
        self._spares.clear()
        self._starters.shutdown()

    def _start_next(self) -> None:
        if not self._closed:
            self._spares.append(self._starters.submit(self._start))

    def _start(self) -> Worker:
        worker = Worker(self._device)
        self._starting.add(worker)
        try:
            if self._closed:
                worker.end()
            worker.wait_ready()
        finally:
            self._starting.discard(worker)
        return worker
