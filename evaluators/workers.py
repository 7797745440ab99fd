"""Worker processes from the judge's side: ask with a time limit, kill, and keep the next one warm.

A worker serves one kernel and is killed. The next one starts while that kernel is judged, so that importing torch
and creating a CUDA context (1.3 s on a CPU, 3 to 5 s on a GPU) are paid beside the work and not before it.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators import sandbox
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.worker.channel import HEADER_BYTES, LARGEST, Message, frame

#: Seconds that starting may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Workers started at once at most (each holds 0.5 GB of a GPU), and cores for each of them.
_LARGEST_BATCH = 4
_CORES_PER_START = 4
#: Characters kept of the beginning and of the end of what a worker prints.
_KEPT_OUTPUT = 16 << 10
#: Seconds between the worker's hanging up and its being taken for alive.
_DEATH_SECONDS = 2.0


class Worker:
    """One worker process."""

    def __init__(self, device: Device) -> None:
        self._started = sandbox.start(device)
        self._received = bytearray()
        self._printed = Printed()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._started.connection, selectors.EVENT_READ)
        self._selector.register(self._started.output, selectors.EVENT_READ)
        #: Moment (`time.monotonic`) at which patience ends whatever it is doing.
        self.deadline = float("inf")

    @property
    def pid(self) -> int:
        """Process id, also of its process group."""
        return self._started.process.pid

    @property
    def printed(self) -> str:
        """What it printed so far, cut in the middle when long."""
        return self._printed.text

    def wait_ready(self) -> None:
        """Block until it is warm.

        Raises:
            EvaluatorError: it did not start.
        """
        try:
            self._await_reply({"loading": _START_SECONDS})
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
            Rejection: it died, hung up, said something that is no reply, or took too long.
        """
        connection = self._started.connection
        connection.settimeout(seconds)
        try:
            data = frame(request)
            if descriptors:
                import socket

                data = data[socket.send_fds(connection, [data], list(descriptors)) :]
            connection.sendall(data)
        except TimeoutError:
            raise Rejection(Verdict.TIMED_OUT, f"it did not listen for {seconds:g} s") from None
        except OSError:
            raise self._death() from None
        return self._await_reply({"loading": seconds, "building": build_seconds or seconds})

    def end(self) -> None:
        """End the process and its whole group; may be called from another thread than the one that asks it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End it and remove its directory. May be called twice."""
        self.end()
        self._started.process.wait()
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._selector.close()
            self._started.connection.close()
            os.close(self._started.output)
        shutil.rmtree(self._started.directory, ignore_errors=True)

    def _await_reply(self, limits: dict[str, float]) -> Message:
        phase = "loading"
        spent = dict.fromkeys(limits, 0.0)
        last = time.monotonic()
        while True:
            message = self._next_message()
            if message is not None:
                if "phase" not in message:
                    return message
                if message["phase"] in limits:
                    phase = message["phase"]
                continue
            left = min(limits[phase] - spent[phase], self.deadline - last)
            if left <= 0:
                doing = "compiling" if phase == "building" else "running"
                raise Rejection(Verdict.TIMED_OUT, f"stopped after {spent[phase]:.0f} s of {doing}")
            # The last wait may end a little early, never a round of the loop late.
            for key, _ in self._selector.select(left):
                self._read(key.fileobj)
            now = time.monotonic()
            spent[phase] += now - last
            last = now

    def _read(self, source: object) -> None:
        if source is self._started.connection:
            try:
                data = self._started.connection.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                raise self._death()
            self._received += data
        else:
            data = os.read(self._started.output, 1 << 16)
            self._printed.add(data)
            if not data:  # closed by the candidate, or the process is ending
                self._selector.unregister(self._started.output)

    def _next_message(self) -> Message | None:
        """The next whole message, None until there is one."""
        if len(self._received) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._received[:HEADER_BYTES], "big")
        if size > LARGEST:
            raise Rejection(Verdict.CRASHED, "it wrote to the judge's connection something that is no reply")
        if len(self._received) < HEADER_BYTES + size:
            return None
        body = bytes(self._received[HEADER_BYTES : HEADER_BYTES + size])
        del self._received[: HEADER_BYTES + size]
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Rejection(Verdict.CRASHED, "it wrote to the judge's connection something that is no reply")
        return message

    def _death(self) -> Rejection:
        """What to say about a worker that hung up."""
        process = self._started.process
        try:
            code = process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return Rejection(Verdict.CRASHED, "it closed the connection to the judge")
        os.set_blocking(self._started.output, False)
        with contextlib.suppress(OSError):
            while data := os.read(self._started.output, 1 << 16):
                self._printed.add(data)
        said = self.printed.strip()
        said = f"; it printed last: {said[-500:]}" if said else ""
        if code >= 0:
            return Rejection(Verdict.CRASHED, f"its process ended itself with exit code {code} before answering{said}")
        return Rejection(Verdict.CRASHED, f"its process died of {_signal(-code)}{said}")


class Printed:
    """The beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """More of the stream."""
        room = _KEPT_OUTPUT - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        self._dropped += max(0, len(self._tail) - _KEPT_OUTPUT)
        del self._tail[:-_KEPT_OUTPUT]

    @property
    def text(self) -> str:
        """What was kept."""
        gap = f"\n[… {self._dropped} bytes …]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")


def _signal(number: int) -> str:
    meanings = {
        signal.SIGSEGV: "an invalid memory access",
        signal.SIGBUS: "an invalid memory access",
        signal.SIGABRT: "abort(), often a failed assertion or heap corruption",
        signal.SIGFPE: "an arithmetic fault such as integer division by zero",
        signal.SIGILL: "an instruction that this processor lacks",
        signal.SIGKILL: "being killed, most likely because memory ran out",
    }
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{known.name} ({meanings[known]})" if known in meanings else known.name


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
