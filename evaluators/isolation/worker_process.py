"""One worker process from the judge's side: ask with a time limit, count, pause, kill."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.isolation import bubblewrap, processes, sandbox
from kbevolve.evaluators.isolation.last_words import Printed, signal_words
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.worker.channel import HEADER_BYTES, LARGEST, Message, frame

#: Seconds that starting may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Seconds between the worker's hanging up and its being taken for alive.
_DEATH_SECONDS = 2.0
#: Seconds that killed processes have to vanish; they need milliseconds, more when their memory is large.
_VANISH_SECONDS = 5.0
#: While a reply is awaited, the worker's processes are counted every so many seconds (1 to 3 ms on most machines).
_WATCH_SECONDS = 0.5
#: Processes a worker may have: ninja runs a compiler on each core, of up to five processes. The kernel's own limit is
#: none to root, and for others counts all they run.
_MOST_PROCESSES = max(256, 8 * (os.cpu_count() or 1))
#: bubblewrap tells that a signal ended its program as shells do, by an exit code above this.
_SIGNALLED = 128


class Worker:
    """One worker process."""

    def __init__(self, device: Device) -> None:
        self._started = sandbox.start(device)
        self._device_type = device.type
        self._received = bytearray()
        self._printed = Printed()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._started.connection, selectors.EVENT_READ)
        self._selector.register(self._started.output, selectors.EVENT_READ)
        self._killed = False
        #: Level of confinement, e.g. "landlock 7, seccomp, limits"; "" until it is ready.
        self.sandbox = ""
        #: Moment (`time.monotonic`) at which patience ends whatever it is doing.
        self.deadline = float("inf")

    @property
    def pid(self) -> int:
        """Process id, also of its process group; inside bubblewrap, bubblewrap's."""
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
            ready = self._await_reply({"loading": _START_SECONDS})
        except Rejection as failure:
            lines = self.printed.strip().splitlines() or [failure.message]
            self.kill()
            raise EvaluatorError(
                f"a worker process did not start: {lines[-1]}; check that `python -c 'import torch'` works"
            ) from None
        # It may be believed: no candidate was there yet.
        self.sandbox = sandbox.full_level(str(ready["sandbox"]), wrapped=self._started.bubblewrap)

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
        connection = self._started.connection
        connection.settimeout(seconds)
        try:
            data = frame(request)
            if descriptors:
                data = data[socket.send_fds(connection, [data], list(descriptors)) :]
            connection.sendall(data)
        except TimeoutError:
            raise Rejection(Verdict.TIMED_OUT, f"it did not listen for {seconds:g} s") from None
        except OSError:
            raise self._death() from None
        return self._await_reply({"loading": seconds, "building": build_seconds or seconds})

    def census(self) -> tuple[int, int]:
        """Processes of the worker and all their threads, as the kernel counts them: (1, …) when it has no helpers."""
        found = processes.members(self.pid)
        if self._started.bubblewrap:
            found = bubblewrap.guarded(found, self.pid, self._device_type)
        return len(found), sum(process.threads for process in found)

    def pause(self) -> None:
        """Stop the worker and its helpers where they are; returns when it stands. A dead one stays dead."""
        if self._signal(signal.SIGSTOP):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End the process and its whole group; may be called from another thread than the one that asks it."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it, paused or not, with all it started, and remove its directory. May be called twice."""
        if self._killed:
            return
        self.end()
        self._started.process.wait()
        self._killed = True
        self._end_survivors()
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._selector.close()
        self._started.connection.close()
        os.close(self._started.output)
        sandbox.remove(self._started.directory)

    def _signal(self, number: signal.Signals) -> bool:
        """Signal the group; whether there was one."""
        if self._killed:  # the number may be another's by now
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
            return True
        return False

    def _end_survivors(self) -> None:
        """Wait until the group is gone; with nothing that kept helpers inside it, look for those that left."""
        held = "seccomp" in self.sandbox or self._started.bubblewrap
        patience = time.monotonic() + _VANISH_SECONDS
        while time.monotonic() < patience:
            left = [process.pid for process in processes.members(self.pid)]
            left += [] if held else processes.strays(self._started.directory)
            if not left:
                return
            processes.kill(left)
            time.sleep(0.002)

    def _await_reply(self, limits: dict[str, float]) -> Message:
        phase = "loading"
        spent = dict.fromkeys(limits, 0.0)
        last = time.monotonic()
        counted = last
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
            for key, _ in self._selector.select(min(left, _WATCH_SECONDS)):
                self._read(key.fileobj)
            now = time.monotonic()
            spent[phase] += now - last
            last = now
            if now - counted >= _WATCH_SECONDS:
                self._check_census()
                counted = time.monotonic()

    def _check_census(self) -> None:
        count, _ = self.census()
        if count > _MOST_PROCESSES:
            self.end()
            raise Rejection(
                Verdict.CRASHED, f"stopped: it had started {count} processes, at most {_MOST_PROCESSES} may be"
            )

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
        if self._started.bubblewrap and code > _SIGNALLED:
            code = _SIGNALLED - code
        if code >= 0:
            return Rejection(Verdict.CRASHED, f"its process ended itself with exit code {code} before answering{said}")
        return Rejection(Verdict.CRASHED, f"its process died of {signal_words(-code)}{said}")
