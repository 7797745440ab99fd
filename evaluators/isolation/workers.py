"""A pool of workers: the next ones are kept warm.

A worker serves one kernel and is killed. The next one starts while that kernel is judged, so that importing torch
and creating a CUDA context (1.3 s on a CPU, 3 to 5 s on a GPU) are paid beside the work and not before it.
"""

import contextlib
import math
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.isolation import sandbox
from kbevolve.evaluators.isolation.nursery import Nursery
from kbevolve.evaluators.isolation.worker_process import Worker
from kbevolve.evaluators.timing.gate import Gate

__all__ = ["Worker", "WorkerPool"]

#: Spares at most (each holds 0.5 GB of a GPU), and cores for each of them: a start keeps one busy for a second or two.
_MOST_SPARES = 6
_CORES_PER_START = 2
#: Weight of the newest observation in the means that say how many spares are needed.
_NEWEST = 0.3
#: Seconds that a start takes, before one was seen.
_USUAL_START = 3.0


class WorkerPool:
    """Workers for one device: each `take` hands over a warm one and sees to it that the next are starting.

    As many are kept as are taken while one starts, within what the machine bears. May be used by several threads.
    """

    def __init__(self, device: Device, gate: Gate, *, first: int = 1) -> None:
        """Start the `first` workers, or as many as the machine bears.

        A start uses the device, and keeps off who is timed by way of the `gate`.
        """
        sandbox.sweep_directories()
        self._device = device
        self._gate = gate
        # A worker dies with the *thread* that started it (PR_SET_PDEATHSIG); these threads live as long as the pool.
        self._starters = ThreadPoolExecutor(thread_name_prefix="kbevolve-worker-start")
        self._most = max(1, min(_MOST_SPARES, len(os.sched_getaffinity(0)) // _CORES_PER_START))
        self._nursery: Nursery | None = None
        #: What Triton builds for itself in a worker's first second, the same in all of them, with a compiler.
        self._built = Path(tempfile.mkdtemp(prefix=f"{sandbox.DIRECTORY_PREFIX}{os.getpid()}-built-"))
        self._is_built = False
        #: Whether a nursery is of any use here.
        self._nurses = True
        self._nursing = threading.Lock()
        self._lock = threading.Lock()
        self._spares: deque[Future[Worker]] = deque()
        self._starting: set[Worker] = set()
        self._start_seconds = _USUAL_START
        self._taken_every = math.inf
        self._taken = 0.0
        self._closed = False
        for _ in range(min(first, 1 + self._most)):
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
            EvaluatorError: workers do not start here, or the pool is closed.
        """
        with self._lock:
            self._note_demand()
        worker = self._take_any()
        while not worker.alive:  # somebody ended it while it waited; no candidate is to be blamed for that
            worker.kill()
            worker = self._take_any()
        return worker

    def _take_any(self) -> Worker:
        with self._lock:
            if not self._spares and not self._start_next():
                raise EvaluatorError("no worker can be had: the judge was closed meanwhile")
            ready = next((spare for spare in self._spares if spare.done()), self._spares[0])
            self._spares.remove(ready)
            while len(self._spares) < self.wanted:
                if not self._start_next():
                    break
        return ready.result()

    @property
    def wanted(self) -> int:
        """Spares that are kept: as many as are taken while one starts, and one more."""
        return max(1, min(self._most, 1 + math.ceil(self._start_seconds / self._taken_every)))

    def close(self) -> None:
        """Kill all spares, those that are starting too."""
        with self._lock:
            self._closed = True
            spares = tuple(self._spares)
            self._spares.clear()
        for worker in tuple(self._starting):
            worker.end()
        for future in spares:
            with contextlib.suppress(EvaluatorError):
                future.result().kill()
        self._starters.shutdown()
        self._close_nursery()
        sandbox.remove(self._built)

    def _note_demand(self) -> None:
        now = time.monotonic()
        if self._taken:
            since = max(now - self._taken, 1e-3)
            known = self._taken_every if math.isfinite(self._taken_every) else since
            self._taken_every = (1 - _NEWEST) * known + _NEWEST * since
        self._taken = now

    def _start_next(self) -> bool:
        if self._closed:
            return False
        self._spares.append(self._starters.submit(self._start))
        return True

    def _start(self) -> Worker:
        started = time.monotonic()
        with self._gate.shared() as waited:
            nursery = self._living_nursery()
            try:
                worker = self._start_in(nursery)
            except EvaluatorError:
                if nursery is None:
                    raise
                # Some systems may not let a forked process do what one can that was started alone.
                worker = self._start_in(None)
                self._nurses = not nursery.alive
        seconds = time.monotonic() - started - waited
        self._start_seconds = (1 - _NEWEST) * self._start_seconds + _NEWEST * seconds
        return worker

    def _start_in(self, nursery: Nursery | None) -> Worker:
        worker = Worker(self._device, nursery, built=self._built if self._is_built else None)
        self._starting.add(worker)
        try:
            if self._closed:
                worker.end()
            worker.wait_ready()
        finally:
            self._starting.discard(worker)
        self._keep_built(worker)
        return worker

    def _keep_built(self, worker: Worker) -> None:
        # A worker that is ended meanwhile, or a full disk, costs the next one a second of compiling and nothing else.
        with self._nursing, contextlib.suppress(OSError, shutil.Error):
            if not self._is_built and worker.triton_cache.is_dir():
                shutil.copytree(worker.triton_cache, self._built, dirs_exist_ok=True)
                self._is_built = True

    def _living_nursery(self) -> Nursery | None:
        """The nursery, a new one when the last has died; None where workers are started alone."""
        with self._nursing:
            if self._nursery is not None and not self._nursery.alive:
                self._close_nursery()
            if self._nursery is None and self._nurses:
                self._nursery = sandbox.open_nursery(self._device)
            return self._nursery if self._nurses else None

    def _close_nursery(self) -> None:
        if self._nursery is not None:
            self._nursery.close()
            sandbox.remove(self._nursery.folder)
            self._nursery = None
