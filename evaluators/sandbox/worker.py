"""One worker process from the judge's side: requests with a time limit, process counts, pausing, killing."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.sandbox import directories, launch
from kbevolve.evaluators.sandbox.build_protocol import (
    Builder,
    BuilderUnavailable,
    BuildRefused,
    BuildResult,
    FailureReason,
    WorkerBuild,
    is_known,
    sealed,
)
from kbevolve.evaluators.sandbox.connection import WorkerConnection
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.process_group import ProcessGroup
from kbevolve.evaluators.sandbox.process_table import (
    RECENT,
    WATCH_SECONDS,
    ProcessorTime,
    has_group,
    kill_all,
    members,
    processor_time,
)
from kbevolve.evaluators.sandbox.usage import Allowance, TooMuch, check
from kbevolve.evaluators.worker.channel import Message

#: Seconds that a start may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Seconds between two looks at a build: how long a finished build may wait for its worker.
_BUILD_POLL_SECONDS = 0.03
#: Builds for one worker: kernels ask for one to three, whose sources the judge keeps.
_MOST_BUILDS = 32
#: Triton kernels for one worker: a network of a hundred layers has some hundreds.
_MOST_KERNELS = 2000
#: Seconds that a worker has to read the reply to a build, which it waits for.
_REPLY_SECONDS = 10.0
#: Characters of a compiler's log that are sent to a worker: the socket takes them from the judge while it is paused.
_MOST_LOG = 1 << 16


class Worker:
    """One worker process."""

    def __init__(
        self,
        device: Device,
        server: ForkServer | None = None,
        *,
        built: Path | None = None,
        connections: int = 0,
        compiles: bool = False,
    ) -> None:
        """Start it by `launch.start`."""
        #: Whether it has imported Inductor: files of torch.compile need it, and importing it takes seconds.
        self.has_inductor = server is not None and server.inductor
        self._launched = launch.start(device, server, built=built, connections=connections, compiles=compiles)
        self._connection = WorkerConnection(self._launched)
        self._group = ProcessGroup(self._launched.process.pid)
        self._killed, self._killing = False, threading.Lock()
        # What its candidate may hold, once it has one; when that was checked; and why it was stopped.
        self._allowance = Allowance.of(self.pid, self._launched.directory, launch.memory_bytes())
        self._is_watched = False
        self._checked = time.monotonic()
        self._stopped: Rejection | None = None
        #: The confinement that it reached, e.g. "landlock 7, seccomp, limits"; "" until it is attached.
        self.sandbox = ""
        #: The moment (`time.monotonic`) after which it is stopped, whatever it does.
        self.deadline = float("inf")
        #: Builds what the worker requests; None where it compiles by itself.
        self.builder: Builder | None = None
        #: Entered when a compiler begins to work for it, left before it continues.
        self.while_compiling: Callable[[], AbstractContextManager[object]] = nullcontext
        #: What was built for it, in order; and whether it compiled anything by itself.
        self.built: list[WorkerBuild] = []
        self.built_alone = False
        self._kernels = 0

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self._launched.process.pid

    @property
    def triton_cache(self) -> Path:
        """Where Triton keeps what it compiles there. Trusted only until the worker holds a candidate."""
        return directories.triton_cache(self._launched.directory)

    @property
    def alive(self) -> bool:
        """Whether it has not exited yet."""
        return not self._killed and self._connection.alive

    @property
    def printed(self) -> str:
        """What it printed so far, cut in the middle when long."""
        return self._connection.printed.text

    def wait_attached(self) -> None:
        """Block until it is confined and known to the GPU's driver; EvaluatorError when it did not start.

        Without a context it disturbs no measurement.
        """
        attached = self._starting(lambda: self._await_reply({"loading": _START_SECONDS}))
        # Trusted: it holds no candidate yet.
        self.sandbox = f"{'bubblewrap, ' if self._launched.bubblewrap else ''}{attached['sandbox']}"

    def wait_ready(self) -> None:
        """Block until it is warm. On a GPU warming up disturbs a measurement. Raises as `wait_attached`."""
        if not self.sandbox:
            self.wait_attached()
        self._starting(lambda: self.ask({"request": "warm"}, seconds=_START_SECONDS))

    def _starting(self, step: Callable[[], Message]) -> Message:
        try:
            return step()
        except Rejection as failure:
            lines = self.printed.strip().splitlines() or [failure.message]
            self.kill()
            raise EvaluatorError(
                f"a worker process did not start: {lines[-1]}; check that `python -c 'import torch'` works"
            ) from None

    def ask(
        self, request: Message, *, seconds: float, build_seconds: float | None = None, descriptors: Sequence[int] = ()
    ) -> Message:
        """Send one request and wait for its reply, which is data from an untrusted process.

        Args:
            request: what to do.
            seconds: time limit, without the time spent in compilers.
            build_seconds: time limit for compilers; `seconds` when None.
            descriptors: file descriptors to send with the request.

        Raises:
            Rejection: it died, hung up, sent no valid reply, took too long, or holds too much (`usage`).
        """
        kind = request["request"]
        self._is_watched |= kind in ("import", "recipe")
        try:
            self._send(request, seconds=seconds, descriptors=descriptors)
            reply = self._await_reply({"loading": seconds, "building": build_seconds or seconds})
            if kind != "time":  # whose round trip is measured
                self._watch(mapped=True, now=kind in ("import", "construct"))
        except TimeoutError:
            raise Rejection(Verdict.TIMED_OUT, f"it did not listen for {seconds:g} s") from None
        except Rejection as failure:
            raise self._stopped or failure from None
        return reply

    @property
    def clock(self) -> float:
        """Seconds by a monotonic clock that does not advance while it is paused."""
        return self._group.clock

    @property
    def processes(self) -> int:
        """Number of its processes by the system's own count: 1 when it has no helpers."""
        return len(members(self.pid))

    @property
    def processor_time(self) -> ProcessorTime:
        """Of the worker and its helpers so far."""
        return processor_time(self.pid)

    def check_holdings(self) -> None:
        """Look at what it holds now; Rejection when that is too much."""
        self._watch(mapped=True, now=True)

    def pause(self, *, wait: bool = True) -> None:
        """Stop the worker and its helpers. With `wait`, returns when it has stopped. No effect on a dead one."""
        self._group.pause(wait=wait)
        if wait:  # what it holds cannot change now, and no measurement is disturbed
            with contextlib.suppress(Rejection):  # raised by the next request
                self._watch(mapped=True)

    def resume(self) -> None:
        """Let it continue."""
        self._group.resume()

    def end(self) -> None:
        """Kill the process and its group, from any thread; `kill` must follow."""
        self._group.kill()

    def kill(self) -> None:
        """Kill it, paused or not, with all that it started, and remove its directory. May be called twice.

        By several threads, too: the descriptors are closed once, since another file may have their numbers by then.
        """
        with self._killing:
            if self._killed:
                return
            self.end()
            self._launched.process.wait()
            self._killed = True
            self._group.mark_reaped()
            self._kill_survivors()
            self._connection.close()
            directories.remove(self._launched.directory)

    def _kill_survivors(self) -> None:
        """Wait until the group is gone. What left it, where no filter prevents that, its fork server has killed."""
        if has_group(self.pid):
            kill_all(lambda: members(self.pid))

    def _await_reply(self, limits: dict[str, float]) -> Message:
        """The next reply; until then, a build for each time that the worker requests one."""
        spent = dict.fromkeys(limits, 0.0)
        phase = "loading"
        paused = 0.0
        with contextlib.ExitStack() as compiling:
            while True:
                message = self._receive(phase, limits, spent)
                if "phase" not in message:
                    return message
                if time.monotonic() > self.deadline:  # it reports phases without end
                    raise Rejection(Verdict.TIMED_OUT, "stopped: it reported compilers to the end of its time")
                built = None
                if message["phase"] == "building" and phase == "loading" and "building" in limits:
                    request = message.get("build")
                    future = self._submitted(request, limits["building"] - spent["building"])
                    if future is None or not is_known(future):
                        compiling.enter_context(self.while_compiling())
                    paused = time.monotonic() - self.clock
                    built = None if future is None else self._built(request, future, spent)
                    phase = "building" if built is None else "loading"
                    self.built_alone |= built is None
                elif message["phase"] == "loading" and phase == "building":
                    phase = "loading"
                    self.deadline += time.monotonic() - self.clock - paused  # pauses are no fault of the kernel
                else:
                    raise Rejection(Verdict.CRASHED, "it reported compilers that cannot be running")
                if phase == "loading":
                    waiting = time.monotonic()
                    compiling.close()
                    self.deadline += time.monotonic() - waiting  # nor is waiting for the device
                self._reply(built)

    def _submitted(self, request: object, seconds: float) -> "Future[BuildResult] | None":
        """A request that is being built; None when the worker must compile by itself."""
        if self.builder is None or not isinstance(request, dict) or seconds <= 0:
            return None
        if len(self.built) >= _MOST_BUILDS:
            raise Rejection(Verdict.CRASHED, f"it asked for more than {_MOST_BUILDS} builds")
        self._kernels += "triton" in request
        if self._kernels > _MOST_KERNELS:
            raise Rejection(Verdict.CRASHED, f"it asked for more than {_MOST_KERNELS} Triton kernels")
        future: Future[BuildResult] = Future()
        try:
            with reading_a_reply(BuildRefused, BuilderUnavailable):
                return self.builder(request, seconds=seconds)
        except BuildRefused as refused:
            future.set_exception(refused)
        except BuilderUnavailable:
            return None
        return future

    def _built(self, request: Any, future: "Future[BuildResult]", spent: dict[str, float]) -> BuildResult | None:
        """What was built of a request; None when the worker must compile by itself."""
        began = time.monotonic()
        try:
            while not future.done():
                wait([future], _BUILD_POLL_SECONDS)
                self._connection.read(0)  # raises when the worker exits
                self._watch()
            built = future.result()
        except BuildRefused as refused:
            built = BuildResult(product=None, log=f"error: {refused}")
        except (BuilderUnavailable, CancelledError, OSError):  # closed, or without room on the disk
            return None
        finally:
            self.deadline += time.monotonic() - began  # waiting for a builder is no fault of the kernel
        spent["building"] += built.seconds
        self.deadline -= built.seconds
        if built.product is None and built.why is FailureReason.TIME:
            raise Rejection(Verdict.TIMED_OUT, f"stopped after {built.seconds:.0f} s of compiling")
        if "triton" not in request:
            self.built.append(WorkerBuild.of(request, built))
        return built

    def _reply(self, built: BuildResult | None) -> None:
        """Answer the worker, which waits for it; None lets it continue, by its own compiler or on the device."""
        message: Message = {"continue": True}
        if built is not None and built.product is None:
            lacking = "\nerror: the compiler ran out of memory" if built.why is FailureReason.MEMORY else ""
            message = {"failed": built.log[:_MOST_LOG] + lacking}
        try:
            with contextlib.ExitStack() as lent:
                descriptors = []
                if built is not None and built.product is not None:
                    message = {"built": True}
                    descriptors = [lent.enter_context(sealed(built.product))]
                self._send(message, seconds=_REPLY_SECONDS, descriptors=descriptors)
        except TimeoutError:
            raise Rejection(Verdict.CRASHED, "it did not listen to what it had asked for") from None

    def _receive(self, phase: str, limits: dict[str, float], spent: dict[str, float]) -> Message:
        """The next message, within the time that is left for the phase."""
        # By the group's clock: the time of a pause, while another kernel is timed, is no fault of the kernel.
        last = self._group.clock
        while True:
            message = self._connection.next_message()
            if message is not None:
                return message
            left = min(limits[phase] - spent[phase], self.deadline - time.monotonic())
            if left <= 0:
                doing = "compiling" if phase == "building" else "running"
                raise Rejection(Verdict.TIMED_OUT, f"stopped after {spent[phase]:.0f} s of {doing}")
            # The last wait may end a little early, but never one round late.
            self._connection.read(min(left, WATCH_SECONDS))
            now = self._group.clock
            spent[phase] += now - last
            last = now
            if time.monotonic() - self._checked >= WATCH_SECONDS:
                self._group.resume_forked()
            self._watch()

    def _send(self, message: Message, *, seconds: float, descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            self._allowance.lend(descriptor)
        self._connection.send(message, seconds=seconds, descriptors=descriptors)

    def _watch(self, *, mapped: bool = False, now: bool = False) -> None:
        """Stop it if it holds too much, when the last check is old or the next is wanted `now`."""
        if self._killed or not (now or time.monotonic() - self._checked >= WATCH_SECONDS):
            return
        self._checked = time.monotonic()
        if self._is_watched:
            try:
                found = members(self.pid) if now else RECENT.members(self.pid)
                check(found, self._allowance, mapped=mapped)
            except TooMuch as excess:
                self._stopped = Rejection(Verdict.CRASHED, f"stopped: it had {excess}")
                self.end()
                raise self._stopped from None
