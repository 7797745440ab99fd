"""A pool of workers that keeps the next ones warm.

A worker serves one kernel and is killed. The next one starts while that kernel is judged, so no kernel waits for the
import of torch and the CUDA context (1.3 s on a CPU, 3 to 5 s on a GPU).
"""

import contextlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.sandbox.fork_servers import ForkServers
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker

#: Bytes of a GPU that the context of a spare worker takes, and the share of the GPU that all of them may take.
_SPARE_BYTES = 1 << 29
_SPARE_SHARE = 0.05
#: Workers that start at once, and how many of them warm up. A CUDA driver serves one process of a host at a time, and
#: four keep it busy; twice as many start, because those that warm up are paused while a kernel is timed. More would
#: wait for its lock, each on a core, and delay the pause (docs/results/2026-11-22-several-gpus-h200.md).
_MOST_STARTING = 8
_MOST_WARMING = 4
#: Spares that start before a fork server has all that workers have, for the first kernels, and seconds between two
#: looks at the server.
_FIRST_SPARES = 4
_LOOK_SECONDS = 0.1


class WorkerPool:
    """Workers for one device, for several threads: each `take` returns a warm one, and the next one starts."""

    def __init__(
        self,
        device: Device,
        gate: DeviceGate,
        *,
        spares: int = 1,
        connections: int = 0,
        fork_server: ForkServer | None = None,
    ) -> None:
        """Start the first workers: the spares, and one for the reference.

        A start that would disturb a kernel that is timed is paused by the `gate`: on a CPU all of it, because it takes
        cores, and on a GPU the part from the context on (docs/results/2026-11-22-several-gpus-h200.md).

        Args:
            device: that they work on.
            gate: of this device.
            spares: workers that may be taken at once; fewer are kept where memory or cores are few.
            connections: hardware queues of workers for kernels on one stream; other workers have the driver's default,
                as these have with 0.
            fork_server: opened before this device was known; the pool closes it.
        """
        directories.remove_stale()
        self._device = device
        self._on_cpu = device.type == "cpu"
        self._gate = gate
        # bubblewrap dies with the *thread* that started it (PR_SET_PDEATHSIG); these threads live as long as the pool.
        self._starters = ThreadPoolExecutor(_MOST_STARTING, thread_name_prefix="kbevolve-worker-start")
        self._warming = threading.BoundedSemaphore(_MOST_WARMING)
        # Number of connections -> spares that are kept. Most kernels take the ones with few connections.
        kept = max(1, min(spares, _affordable(device)))
        self._kept = {connections: kept, 0: 1 if connections else kept}
        self._few = connections
        self._fork_servers = ForkServers(device, fork_server)
        # What Triton compiles for itself in a worker's first second, the same in all of them.
        self._built = directories.empty()
        self._is_built = False
        self._preparing = threading.Lock()
        self._lock = threading.Lock()
        self._spares: dict[int, deque[Future[Worker]]] = {connections: deque(), 0: deque()}
        self._starting: set[Worker] = set()
        self._closed = False
        self._refill()
        self._start_next(0)
        if not self._fork_servers.complete:
            self._starters.submit(self._refill_completely)

    def take(self, *, one_stream: bool = False) -> Worker:
        """A warm worker that never held a candidate; the caller kills it.

        Args:
            one_stream: whether its kernel uses one stream only, for which few connections suffice.

        Raises:
            EvaluatorError: workers do not start here, or the pool is closed.
        """
        number = self._few if one_stream else 0
        worker = self._take_any(number)
        while not worker.alive:  # it was killed while it waited, which is no candidate's fault
            worker.kill()
            worker = self._take_any(number)
        return worker

    def _take_any(self, number: int) -> Worker:
        spares = self._spares[number]
        with self._lock:
            if not spares and not self._start_next(number):
                raise EvaluatorError("no worker can be had: the judge was closed meanwhile")
            ready = max(spares, key=_readiness)
            spares.remove(ready)
            self._refill()
        return ready.result()

    def compiler(self) -> AbstractContextManager[Worker]:
        """Offer a process that compiles one Triton kernel and never holds a candidate; entering starts it.

        It is paused while a kernel is timed: on a busy host a compiler makes launches late.

        Raises:
            EvaluatorError: none can be forked here, or the calling thread has the device alone, so that it would wait
                for a process that is paused.
        """
        server = None if self._closed or self._gate.is_mine else self._fork_servers.living()
        if server is None:
            raise EvaluatorError("no process compiles for this worker")
        return self._compiling(server)

    @contextmanager
    def _compiling(self, server: ForkServer) -> Iterator[Worker]:
        worker = Worker(self._device, server, compiles=True)
        try:
            with self._gate.in_background(worker):
                worker.wait_attached()
                yield worker
        finally:
            worker.kill()

    def close(self) -> None:
        """Kill all spares, including those that are starting."""
        with self._lock:
            self._closed = True
            spares = tuple(spare for waiting in self._spares.values() for spare in waiting)
            for waiting in self._spares.values():
                waiting.clear()
        for worker in tuple(self._starting):
            worker.end()
        for future in spares:
            with contextlib.suppress(EvaluatorError):
                future.result().kill()
        self._starters.shutdown()
        self._fork_servers.close()
        directories.remove(self._built)

    def _start_next(self, number: int) -> bool:
        if self._closed:
            return False
        self._spares[number].append(self._starters.submit(self._start, number))
        return True

    def _refill(self) -> None:
        """Start the spares that are missing; few while they would lack what a fork server still imports."""
        complete = self._fork_servers.complete
        for number, kept in self._kept.items():
            wanted = kept if complete else min(kept, _FIRST_SPARES)
            while len(self._spares[number]) < wanted and self._start_next(number):
                pass

    def _refill_completely(self) -> None:
        while not self._closed and not self._fork_servers.complete:
            time.sleep(_LOOK_SECONDS)
        with self._lock:
            self._refill()

    def _start(self, number: int) -> Worker:
        with self._starting_process():
            server = self._fork_servers.living()
        try:
            worker = self._start_from(server, number)
            if server is not None:
                self._fork_servers.worked()
            return worker
        except EvaluatorError:
            if server is None:
                raise
            # Some systems may refuse a forked process what they allow a started program.
            worker = self._start_from(None, number)
            self._fork_servers.failed(server)
            return worker

    def _start_from(self, server: ForkServer | None, number: int) -> Worker:
        with ExitStack() as until_ready:
            with self._starting_process():
                built = self._built if self._is_built else None
                worker = Worker(self._device, server, built=built, connections=number)
                if self._on_cpu:
                    until_ready.enter_context(self._gate.in_background(worker))
            self._starting.add(worker)
            until_ready.callback(self._starting.discard, worker)
            if self._closed:
                worker.end()
            worker.wait_attached()
            if not self._on_cpu:
                until_ready.enter_context(self._warming)
                until_ready.enter_context(self._gate.in_background(worker))
            worker.wait_ready()
        self._keep_built(worker)
        return worker

    def _starting_process(self) -> AbstractContextManager[object]:
        """Entered while a process is created: on a CPU that takes a core on which kernels are timed."""
        return self._gate.shared() if self._on_cpu else nullcontext()

    def _keep_built(self, worker: Worker) -> None:
        # If the worker is killed meanwhile or the disk is full, the next worker compiles for a second, and that is all.
        with self._preparing, contextlib.suppress(OSError, shutil.Error):
            if not self._is_built and worker.triton_cache.is_dir():
                shutil.copytree(worker.triton_cache, self._built, dirs_exist_ok=True)
                self._is_built = True


def _readiness(spare: Future[Worker]) -> int:
    """0 for a worker that still starts, 1 for one that has started, 2 if it has Inductor, too."""
    if not spare.done():
        return 0
    return 1 + (spare.exception() is None and spare.result().has_inductor)


def _affordable(device: Device) -> int:
    """Spares that leave cores and memory to the workers in use."""
    cores = len(os.sched_getaffinity(0))
    if device.type == "cpu":
        return cores // 2
    memory = torch.cuda.get_device_properties(device.index).total_memory
    return min(cores, int(_SPARE_SHARE * memory / _SPARE_BYTES))
