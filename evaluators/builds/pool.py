"""The builders of one judge: a fixed number of compilers, each request built once, products kept for all processes."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.build_job import BuildJob
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.headers import Headers
from kbevolve.evaluators.builds.sandboxed_compiler import DIRECTORY_PREFIX
from kbevolve.evaluators.builds.triton import OfferCompiler, TritonRequest
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.sandbox.build_protocol import BuilderUnavailable, BuildResult
from kbevolve.evaluators.sandbox.environment import cuda_architecture
from kbevolve.evaluators.sandbox.launch import COMPILER_NICE
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message

#: Requests in progress at once; most of them wait for their compilers.
_MOST_REQUESTS = 64
#: Cores that compilers leave free while a GPU is timed: the judge's and the worker's.
_TIMING_CORES = 2


class BuildPool:
    """Builds requests, for several threads.

    Its cache is in the directory of the disk cache. No process that holds a candidate ever writes to it.
    """

    def __init__(
        self,
        device: Device,
        settings: EvaluationSettings,
        disk_cache: DiskCache,
        *,
        width: int = 0,
        plain: bool = False,
        offer_compiler: OfferCompiler | None = None,
        while_precompiling: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Nothing is started before the first request.

        Args:
            device: that the products run on.
            settings: `build_seconds` limits the time of compilers for one request.
            disk_cache: in whose directory products are kept.
            width: compilers at once; 0 for all cores except those that timing needs.
            plain: build with torch's own headers only.
            offer_compiler: offers a process that compiles a Triton kernel; None where workers compile theirs.
            while_precompiling: entered while a header is precompiled, for which no kernel waits.
        """
        directories.remove_stale(prefix=DIRECTORY_PREFIX)
        self.cache = BuildCache(disk_cache.directory / "builds")
        self.headers = Headers(self.cache.directory)
        self.architecture = cuda_architecture(device.index) if device.type == "cuda" else ""
        self.width = width or _width(device.type)
        self.seconds = settings.build_seconds
        self._plain = plain
        self._offer_compiler = offer_compiler
        self._while_precompiling = while_precompiling
        # bubblewrap dies with the thread that started it; these threads live as long as the pool.
        self._steps = ThreadPoolExecutor(self.width, thread_name_prefix="kbevolve-compile")
        self._requests = ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="kbevolve-build")
        # With the seconds that its compilers may take.
        self._in_progress: dict[str, tuple[Future[BuildResult], float]] = {}
        self._stop = threading.Event()
        self._lock = threading.RLock()  # reentrant, because a finished future calls back at once

    def close(self) -> None:
        """Start nothing more, and end the running compilers. May be called twice."""
        self._stop.set()
        self._steps.shutdown(cancel_futures=True)
        self._requests.shutdown(cancel_futures=True)

    def submit(self, request: BuildRequest, *, seconds: float | None = None) -> Future[BuildResult]:
        """Begin to build a request, unless it is in progress already; the future may raise `BuilderUnavailable`.

        `seconds`: that compilers may take; None for the setting.
        """
        if self._plain:
            request = replace(request, plain=True)
        key = request.key(toolchain())
        most = seconds or self.seconds
        return self._once(key, most, lambda: self._requests.submit(self._find_or_build, key, request, most))

    def builder(self, request: Message, *, seconds: float) -> Future[BuildResult]:
        """Implements `Builder`."""
        try:
            if "triton" in request:
                return self._triton(TritonRequest.from_json(request["triton"]), seconds)
            return self.submit(BuildRequest.from_json(request, architecture=self.architecture), seconds=seconds)
        except RuntimeError:
            raise BuilderUnavailable("the pool is closed") from None

    # ---- a Triton kernel -------------------------------------------------------------------------------------------

    def _triton(self, request: TritonRequest, seconds: float) -> Future[BuildResult]:
        """As `submit`. What is known is in the future at once: a worker asks for some dozens of kernels."""
        if self._offer_compiler is None:
            raise BuilderUnavailable("workers compile their Triton kernels here")
        key = request.key()
        known = self.cache.get("triton", key)
        if known is not None:
            found: Future[BuildResult] = Future()
            found.set_result(known)
            return found
        try:
            compiler = self._offer_compiler()
        except EvaluatorError as failure:
            raise BuilderUnavailable(str(failure)) from None
        submit = partial(self._steps.submit, self._compile_triton, key, request, compiler, seconds)
        return self._once(key, seconds, submit)

    def _compile_triton(
        self, key: str, request: TritonRequest, compiler: AbstractContextManager[Worker], seconds: float
    ) -> BuildResult:
        known = self.cache.get("triton", key)  # another thread's may have ended since this one looked
        if known is not None:
            return known
        result = request.compile(compiler, seconds=seconds)
        if not self._stop.is_set():
            self.cache.put("triton", key, result)
        return result

    # ---- one request -----------------------------------------------------------------------------------------------

    def _find_or_build(self, key: str, request: BuildRequest, seconds: float) -> BuildResult:
        known = self.cache.get("library", key)
        if known is not None:
            return known
        job = BuildJob(
            request, cache=self.cache, headers=self.headers, seconds=seconds, nice=self._nice, stop=self._stop
        )
        try:
            result = job.result(self._steps, precompile=self._precompile)
        except RuntimeError:
            if self._stop.is_set():  # closed between two steps
                raise CancelledError from None
            raise
        if not self._stop.is_set():
            self.cache.put("library", key, result)
        return result

    def _precompile(self, name: str, command: Sequence[str]) -> None:
        make = partial(self.headers.precompile, name, command, seconds=self.seconds, nice=self._nice, stop=self._stop)

        def in_background() -> None:
            # The context is entered in a thread of requests: a thread that it waits for may need a compiler's thread.
            with self._while_precompiling(), suppress(RuntimeError, CancelledError):
                self._steps.submit(make).result()

        with suppress(RuntimeError):  # closed meanwhile
            self._requests.submit(in_background)

    @property
    def _nice(self) -> int:
        """By how much compilers yield to other processes. On a CPU no kernel is timed meanwhile."""
        return COMPILER_NICE if self.architecture else 0

    def _once(self, key: str, seconds: float, submit: Callable[[], Future[BuildResult]]) -> Future[BuildResult]:
        """The future of this key that is in progress, or a new one where that has less than half of these seconds.

        A worker whose time is nearly over must not stop the same build of others.
        """
        with self._lock:
            future, its_seconds = self._in_progress.get(key, (None, 0.0))
            if future is None or its_seconds < seconds / 2:
                future = submit()
                self._in_progress[key] = future, seconds
                future.add_done_callback(partial(self._forget, key))
        return future

    def _forget(self, key: str, future: Future[BuildResult]) -> None:
        with self._lock:
            if self._in_progress.get(key, (None,))[0] is future:
                del self._in_progress[key]


def _width(device_type: str) -> int:
    cores = len(os.sched_getaffinity(0))
    # On a CPU kernels are timed on the same cores.
    return max(1, cores - _TIMING_CORES) if device_type == "cuda" else max(1, cores // 2)
