"""The builders of one judge: so many compilers at once, each order built once, products kept for every process."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Self

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.build_job import BuildJob, precompile
from kbevolve.evaluators.builds.build_request import BuildRefused, BuildRequest
from kbevolve.evaluators.builds.cache import BuildCache
from kbevolve.evaluators.builds.compiler import architecture, commands, toolchain
from kbevolve.evaluators.builds.headers import Headers, precompiled_name
from kbevolve.evaluators.builds.product import BuildResult, BuiltLibrary, FailureReason, from_entry, to_entry
from kbevolve.evaluators.builds.sandboxed_compiler import remove_stale_directories
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.build_protocol import BuildReply
from kbevolve.evaluators.sandbox.process_table import WATCH_SECONDS, ProcessTable
from kbevolve.evaluators.worker.channel import LARGEST, Message

#: Orders under way at once; they mostly wait for their compilers.
_MOST_ORDERS = 64
#: Cores that are not the compilers' while a GPU is timed: the judge's and the worker's.
_TIMING_CORES = 2
#: Characters of a compiler's log that are sent to a worker.
_MOST_LOG = LARGEST // 16

#: Builds an order within so many seconds of compilers, somewhere; None when that is not possible now.
RemoteBuilder = Callable[[BuildRequest, float], BuildResult | None]


class BuildPool:
    """Builds orders; for several threads at once.

    Files of the cache lie beside the disk_cache's. Nothing in it is ever written by a process that holds a candidate.
    """

    def __init__(
        self,
        device: Device,
        settings: EvaluationSettings,
        disk_cache: DiskCache,
        *,
        width: int = 0,
        plain: bool = False,
        elsewhere: RemoteBuilder | None = None,
        process_table: ProcessTable | None = None,
        while_precompiling: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Nothing is started before the first order.

        Args:
            device: that the products run on.
            settings: `build_seconds` is how long one order may keep compilers busy.
            disk_cache: beside which products are kept.
            width: compilers at once; 0 for all cores but those that a device being timed needs.
            plain: build with torch's own headers only.
            elsewhere: builds what the cache does not hold, e.g. on another host; None for the compilers of this one.
            process_table: that counts the compilers' processes; None for one of the pool's own.
            while_precompiling: entered while a header is precompiled, which no kernel waits for.
        """
        remove_stale_directories()
        self.cache = BuildCache(disk_cache.directory / "builds")
        self.headers = Headers(self.cache.directory)
        self.architecture = architecture(device.type, device.index)
        self.width = width or _width(device.type)
        self.seconds = settings.build_seconds
        self._plain = plain
        self._elsewhere = elsewhere
        self._process_table = process_table or ProcessTable(seconds=WATCH_SECONDS)
        self._while_precompiling = while_precompiling
        # A compiler dies with the thread that started it: these live as long as the pool.
        self._steps = ThreadPoolExecutor(self.width, thread_name_prefix="kbevolve-compile")
        self._orders = ThreadPoolExecutor(_MOST_ORDERS, thread_name_prefix="kbevolve-build")
        self._under_way: dict[str, Future[BuildResult]] = {}
        self._stop = threading.Event()
        self._lock = threading.RLock()  # a future that is done calls back at once

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Begin nothing more, and end the compilers that run. May be called twice."""
        self._stop.set()
        self._steps.shutdown(cancel_futures=True)
        self._orders.shutdown(cancel_futures=True)

    def build(self, order: BuildRequest) -> BuildResult:
        """Build an order, or find what came of it before.

        Raises:
            BuildRefused: torch's builder refuses it.
            EvaluatorError: torch has no builder that we know.
        """
        return self.submit(order).result()

    def submit(self, order: BuildRequest, *, seconds: float | None = None) -> Future[BuildResult]:
        """Begin to build an order; one that is under way is not begun again.

        Args:
            order: what to build.
            seconds: that compilers may take; None for the setting.
        """
        if self._plain:
            order = order.made_plain()
        key = order.key(toolchain())
        with self._lock:
            future = self._under_way.get(key)
            if future is None:
                future = self._orders.submit(self._settle, key, order, seconds or self.seconds)
                self._under_way[key] = future
                future.add_done_callback(lambda _: self._forget(key))
        return future

    def builder(self, request: Message, *, seconds: float) -> Future[BuildReply] | None:
        """Build what a worker requested, for `Worker.builder`; None for what it must compile by itself."""
        try:
            wanted = BuildRequest.from_json(request, architecture=self.architecture)
            outcome = self.submit(wanted, seconds=seconds)
        except (BuildRefused, RuntimeError):  # the latter: the pool is closed
            return None
        reply: Future[BuildReply] = Future()
        outcome.add_done_callback(lambda done: _hand_on(done, request, reply))
        return reply

    def prepare(self, *, flags: Sequence[str] = (), with_cuda: bool = False) -> bool:
        """Precompile the bindings' header for these flags now, which otherwise happens at the third file with them.

        Takes some 10 s once for each version of torch; returns whether it was made.
        """
        sources = (("main.cpp", ""),)
        order = BuildRequest(
            name="x", sources=sources, cflags=tuple(flags), with_cuda=with_cuda, architecture=self.architecture
        )
        command = commands(order).cxx
        return self._steps.submit(self._make_header, precompiled_name(command), command).result()

    # ---- one order -------------------------------------------------------------------------------------------------

    def _settle(self, key: str, order: BuildRequest, seconds: float) -> BuildResult:
        known = self.cache.get("library", key)
        if known is not None:
            return from_entry(known)
        outcome = self._elsewhere(order, seconds) if self._elsewhere else None
        outcome = outcome or self._build_here(order, seconds)
        entry = to_entry(outcome)
        if entry is not None and not self._stop.is_set():
            self.cache.put("library", key, entry)
        return outcome

    def _build_here(self, order: BuildRequest, seconds: float) -> BuildResult:
        building = BuildJob(
            order,
            toolchain(),
            cache=self.cache,
            headers=self.headers,
            seconds=seconds,
            stop=self._stop,
            process_table=self._process_table,
        )
        try:
            return building.outcome(self._steps, precompile=self._precompile)
        except RuntimeError:
            if self._stop.is_set():  # closed between two steps
                raise CancelledError from None
            raise

    def _precompile(self, name: str, command: Sequence[str]) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            self._orders.submit(self._precompile_beside, name, command)

    def _precompile_beside(self, name: str, command: Sequence[str]) -> None:
        # Entered by a thread that no compiler needs: whoever is waited for there may need a compiler himself.
        with self._while_precompiling(), suppress(RuntimeError, CancelledError):
            self._steps.submit(self._make_header, name, command).result()

    def _make_header(self, name: str, command: Sequence[str]) -> bool:
        return precompile(
            self.headers, name, command, architecture=self.architecture, seconds=self.seconds, stop=self._stop
        )

    def _forget(self, key: str) -> None:
        with self._lock:
            self._under_way.pop(key, None)


def _hand_on(done: Future[BuildResult], order: Message, reply: Future[BuildReply]) -> None:
    """The answer to a worker, when its order is done."""
    try:
        reply.set_result(_reply(done.result(), order))
    except (BuildRefused, EvaluatorError, CancelledError):
        reply.set_result(BuildReply(message={"compile": True}))
    except BaseException as error:  # for whoever waits, and not lost in a thread of the pool
        reply.set_exception(error)


def _reply(outcome: BuildResult, order: Message) -> BuildReply:
    if isinstance(outcome, BuiltLibrary):
        resources = [kernel.to_json() for kernel in outcome.resources]
        return BuildReply(
            message={"built": {"resources": resources}},
            library=outcome.library,
            traits=outcome.traits,
            request=order,
            seconds=outcome.seconds,
        )
    log = outcome.log[:_MOST_LOG]
    if outcome.why is FailureReason.MEMORY:
        log += "\nerror: the compiler ran out of memory"
    return BuildReply(message={"failed": log}, seconds=outcome.seconds, timed_out=outcome.why is FailureReason.TIME)


def _width(device_type: str) -> int:
    cores = len(os.sched_getaffinity(0))
    # On a CPU the kernels that are timed run on the same cores.
    return max(1, cores - _TIMING_CORES) if device_type == "cuda" else max(1, cores // 2)
