"""One worker process from the judge's side: ask with a time limit, count, pause, kill."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import bubblewrap, directories, launch
from kbevolve.evaluators.sandbox.build_protocol import Builder, BuildReply, sealed
from kbevolve.evaluators.sandbox.connection import WorkerConnection
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.process_group import ProcessGroup
from kbevolve.evaluators.sandbox.process_table import (
    WATCH_SECONDS,
    Process,
    ProcessorTime,
    ProcessTable,
    has_group,
    kill,
    leaked,
    members,
    processor_time,
)
from kbevolve.evaluators.worker.channel import Message

#: Seconds that starting may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Seconds that killed processes have to vanish; they need milliseconds, more when their memory is large.
_VANISH_SECONDS = 5.0
#: While its order is built, that is looked at as often: what a build waits for its worker at most.
_BUILD_WATCH_SECONDS = 0.03
#: Seconds that a worker has to take an answer about a build, which it waits for.
_ANSWER_SECONDS = 10.0
#: Processes a worker may have: ninja runs a compiler on each core, of up to five processes. The kernel's own limit is
#: none to root, and for others counts all they run.
_MOST_PROCESSES = max(256, 8 * (os.cpu_count() or 1))


class Worker:
    """One worker process."""

    def __init__(
        self,
        device: Device,
        fork_server: ForkServer | None = None,
        *,
        built: Path | None = None,
        connections: int = 0,
        process_table: ProcessTable | None = None,
    ) -> None:
        """Start it, on its own or in a fork_server.

        Args:
            device: that it sees.
            fork_server: that bears it; None to start it on its own.
            built: what Triton built for itself in another one.
            connections: of its CUDA context to the device; 0 for the driver's number.
            process_table: that counts its processes while it works; None for one of its own.

        Raises:
            EvaluatorError: the fork_server has died.
        """
        self._started = launch.start(device, fork_server, built=built, connections=connections)
        self._device_type = device.type
        self._process_table = process_table or ProcessTable(seconds=WATCH_SECONDS)
        self._line = WorkerConnection(self._started)
        self._group = ProcessGroup(self._started.process.pid)
        self._killed = False
        #: Level of confinement, e.g. "landlock 7, seccomp, limits"; "" until it is attached.
        self.sandbox = ""
        #: Moment (`time.monotonic`) at which patience ends whatever it is doing.
        self.deadline = float("inf")
        #: Carries out what the worker wants compiled; None where it compiles by itself.
        self.builder: Builder | None = None
        #: Entered when a compiler begins to work for it, left before it goes on.
        self.while_compiling: Callable[[], AbstractContextManager[object]] = nullcontext
        #: What was built for it, in order; and whether it compiled anything by itself.
        self.built: list[BuildReply] = []
        self.built_alone = False

    @property
    def pid(self) -> int:
        """Process id, also of its process group; inside bubblewrap, bubblewrap's."""
        return self._started.process.pid

    @property
    def triton_cache(self) -> Path:
        """Where Triton keeps what it builds there. To be believed before a candidate was there, and never after."""
        return directories.triton_cache(self._started.directory)

    @property
    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return not self._killed and self._line.alive

    @property
    def printed(self) -> str:
        """What it printed so far, cut in the middle when long."""
        return self._line.printed.text

    def wait_attached(self) -> None:
        """Block until it is confined and known to the GPU's driver. It has no context yet, and disturbs nobody.

        Raises:
            EvaluatorError: it did not start.
        """
        attached = self._starting(lambda: self._await_reply({"loading": _START_SECONDS}))
        # It may be believed: no candidate was there yet.
        self.sandbox = launch.full_level(str(attached["sandbox"]), wrapped=self._started.bubblewrap)

    def wait_ready(self) -> None:
        """Have it warm up, and block until it is warm. On a GPU that takes time from a kernel that is timed meanwhile.

        Raises:
            EvaluatorError: it did not start.
        """
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
            seconds: time limit, the time spent in compilers not counted.
            build_seconds: time limit for compilers; `seconds` when None.
            descriptors: file descriptors to send along.

        Raises:
            Rejection: it died, hung up, said something that is no reply, took too long, or multiplied.
        """
        try:
            self._line.tell(request, seconds=seconds, descriptors=descriptors)
        except TimeoutError:
            raise Rejection(Verdict.TIMED_OUT, f"it did not listen for {seconds:g} s") from None
        return self._await_reply({"loading": seconds, "building": build_seconds or seconds})

    @property
    def processes(self) -> int:
        """The worker's, as the kernel of the operating system counts them: 1 when it has no helpers."""
        return self._count(members(self.pid))

    @property
    def processor_time(self) -> ProcessorTime:
        """What it and its helpers have had of processors so far."""
        return processor_time(self.pid)

    def pause(self, *, wait: bool = True) -> None:
        """Stop the worker and its helpers where they are; returns when it stands. A dead one stays dead."""
        self._group.pause(wait=wait)

    def resume(self) -> None:
        """Let it go on."""
        self._group.resume()

    def end(self) -> None:
        """End the process and its whole group; may be called from another thread than the one that asks it."""
        self._group.end()

    def kill(self) -> None:
        """End it, paused or not, with all it started, and remove its directory. May be called twice."""
        if self._killed:
            return
        self.end()
        self._started.process.wait()
        self._killed = True
        self._group.forget()
        self._end_survivors()
        self._line.close()
        directories.remove(self._started.directory)

    def _end_survivors(self) -> None:
        """Wait until the group is gone; with nothing that kept helpers inside it, look for those that left."""
        held = "seccomp" in self.sandbox or self._started.bubblewrap
        if "seccomp" in self.sandbox and not has_group(self.pid):
            return
        patience = time.monotonic() + _VANISH_SECONDS
        while time.monotonic() < patience:
            left = [process.pid for process in members(self.pid)]
            left += [] if held else leaked(self._started.directory)
            if not left:
                return
            kill(left)
            time.sleep(0.002)

    def _await_reply(self, limits: dict[str, float]) -> Message:
        """The next reply, a build for each time that the worker asks for one done before."""
        spent = dict.fromkeys(limits, 0.0)
        phase = "loading"
        with contextlib.ExitStack() as away:
            while True:
                message = self._next_words(phase, limits, spent)
                if "phase" not in message:
                    return message
                if message["phase"] == "building" and phase == "loading" and "building" in limits:
                    away.enter_context(self.while_compiling())
                    answer = self._build(message.get("build"), limits["building"], spent)
                    phase = "building" if answer is None else "loading"
                    self.built_alone |= answer is None
                elif message["phase"] == "loading" and phase == "building":
                    answer, phase = BuildReply(message={"go": True}), "loading"
                else:
                    raise Rejection(Verdict.CRASHED, "it told of compilers what cannot be")
                if phase == "loading":
                    waiting = time.monotonic()
                    away.close()
                    self.deadline += time.monotonic() - waiting  # others' work, not the kernel's
                self._answer(answer or BuildReply(message={"compile": True}))

    def _build(self, order: object, limit: float, spent: dict[str, float]) -> BuildReply | None:
        """Have an order built; None when the worker is to compile by itself."""
        began = time.monotonic()
        future = self._ordered(order, seconds=limit - spent["building"])
        if future is None:
            return None
        self._watch_until(future)
        built = future.result()
        spent["building"] += built.seconds
        self.deadline += time.monotonic() - began - built.seconds  # waiting for a builder is no fault of the kernel
        if built.timed_out:
            raise Rejection(Verdict.TIMED_OUT, f"stopped after {built.seconds:.0f} s of compiling")
        self.built.append(built)
        return built

    def _ordered(self, order: object, *, seconds: float) -> Future[BuildReply] | None:
        if self.builder is None or not isinstance(order, dict) or seconds <= 0:
            return None
        return self.builder(order, seconds=seconds)

    def _watch_until(self, future: Future[BuildReply]) -> None:
        """Keep an eye on the worker, which has nothing to do, until its order is built."""
        counted = time.monotonic()
        while not future.done():
            self._line.hear(_BUILD_WATCH_SECONDS)
            if time.monotonic() - counted >= WATCH_SECONDS:
                self._check_process_table()
                counted = time.monotonic()

    def _answer(self, answer: BuildReply) -> None:
        """Answer while the worker waits for it."""
        try:
            if answer.library is None:
                self._line.tell(answer.message, seconds=_ANSWER_SECONDS)
            else:
                with sealed(answer.library) as descriptor:
                    self._line.tell(answer.message, seconds=_ANSWER_SECONDS, descriptors=[descriptor])
        except TimeoutError:
            raise Rejection(Verdict.CRASHED, "it did not listen to what it had asked for") from None

    def _next_words(self, phase: str, limits: dict[str, float], spent: dict[str, float]) -> Message:
        """The next message, within what is left of the phase's time."""
        # What a worker stood still while another was timed is no fault of its own.
        last, counted = self._group.clock, time.monotonic()
        while True:
            message = self._line.next_message()
            if message is not None:
                return message
            left = min(limits[phase] - spent[phase], self.deadline - time.monotonic())
            if left <= 0:
                doing = "compiling" if phase == "building" else "running"
                raise Rejection(Verdict.TIMED_OUT, f"stopped after {spent[phase]:.0f} s of {doing}")
            # The last wait may end a little early, never a round of the loop late.
            self._line.hear(min(left, WATCH_SECONDS))
            now = self._group.clock
            spent[phase] += now - last
            last = now
            if time.monotonic() - counted >= WATCH_SECONDS:
                self._group.resume_forked()
                self._check_process_table()
                counted = time.monotonic()

    def _count(self, found: Sequence[Process]) -> int:
        if self._started.led_by_bubblewrap:
            found = bubblewrap.guarded(found, self.pid, self._device_type)
        return len(found)

    def _check_process_table(self) -> None:
        count = self._count(self._process_table.members(self.pid))
        if count > _MOST_PROCESSES:
            self.end()
            raise Rejection(
                Verdict.CRASHED, f"stopped: it had started {count} processes, at most {_MOST_PROCESSES} may be"
            )
