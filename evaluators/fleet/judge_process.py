"""A judge in a process of its own on this machine: one for each device.

It is a new process (never forked: a fork of a process with threads or with CUDA is broken), receives requests over a
socket pair, and ends when that closes, however this process ended. Ctrl-C in a terminal reaches this process alone,
which then ends the judges in order.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import IO, Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import Device, visible_name
from kbevolve.evaluators.fleet.judge_host import JudgeDied, JudgeHost, JudgeInfo, JudgeReply, JudgeRequest, JudgeSpec
from kbevolve.evaluators.sandbox.output import describe_signal

#: Seconds that a start may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Seconds between two checks whether a start was given up.
_POLL_SECONDS = 0.2
#: Seconds that a judge has to end its workers and remove their directories; then it is killed.
_LEAVE_SECONDS = 10.0
#: Names of variables that hold keys; a judge needs none.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class JudgeProcess:
    """Implements `RemoteJudge` by a process of this machine."""

    info: JudgeInfo

    def __init__(self, spec: JudgeSpec, device: Device, given_up: Callable[[], bool] = lambda: False) -> None:
        """Start it, and wait until it is ready; raises as `StartJudge`.

        Args:
            spec: what the judge is made from; its device is set here.
            device: the device as this process names it.
            given_up: called several times a second; the start ends when it returns True.
        """
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read when it died, closed in `close`
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kbevolve.evaluators.fleet.judge_process", str(theirs.fileno())],
                env=environment(device, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        self._closed = False
        own = "cpu" if device.type == "cpu" else "cuda:0"  # the only device that it sees
        try:
            self._connection.send(replace(spec, device=own, search_path=tuple(sys.path)))
            self.info = self._await_info(given_up)
        except BaseException as failure:
            death = self._cause_of_death() if isinstance(failure, EOFError | OSError) else ""
            self.close()
            if death:
                raise JudgeDied(death) from None
            raise
        self._reader = threading.Thread(target=self._read_replies, name="kbevolve-judge-replies", daemon=True)
        self._reader.start()

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        """Implements `RemoteJudge.ask`."""
        answer: Future[JudgeReply] = Future()
        with self._sending:
            if self._closed:
                raise JudgeDied("it was ended")
            self._number += 1
            number = self._number
            self._waiting[number] = answer
            try:
                self._connection.send((number, request.portable()))
            except OSError:
                self._waiting.pop(number, None)
                raise JudgeDied(self._cause_of_death()) from None
        try:
            return answer.result(seconds).result()
        except TimeoutError:
            self._process.kill()  # a judge that hangs does not end in order
            raise JudgeDied(f"it gave no answer within {seconds:.0f} s") from None

    def close(self) -> None:
        """End it: in order when it responds, else by force."""
        with self._sending:
            first, self._closed = not self._closed, True
            if first:
                with contextlib.suppress(OSError):
                    self._connection.send(None)
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not first:
            return
        if (reader := getattr(self, "_reader", None)) is not None:
            reader.join()  # it ends at the end of the connection
        self._connection.close()
        self._output.close()

    def _await_info(self, given_up: Callable[[], bool]) -> JudgeInfo:
        deadline = time.monotonic() + _START_SECONDS
        while not self._connection.poll(_POLL_SECONDS):
            if given_up():
                raise EvaluatorError("starting a judge was given up")
            if time.monotonic() > deadline:
                raise JudgeDied(f"it was not ready after {_START_SECONDS:.0f} s")
        info: JudgeInfo = self._connection.recv().result()
        return info

    def _read_replies(self) -> None:
        while True:
            try:
                number, reply = self._connection.recv()
            except (EOFError, OSError):
                break
            self._waiting.pop(number).set_result(reply)
        death = self._cause_of_death()
        with self._sending:  # later requests fail at the socket, whose other end is closed
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            answer.set_exception(JudgeDied(death))

    def _cause_of_death(self) -> str:
        """How it ended, in one line, with the last line that it printed."""
        try:
            code = self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        how = (
            f"its process died of {describe_signal(-code)}" if code < 0 else f"its process ended with exit code {code}"
        )
        with contextlib.suppress(OSError, ValueError):
            self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 4096))
            lines = self._output.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f"{how}; its last output: {lines[-1][:300]}"
        return how


def environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a judge: everything but keys, and of the GPUs only its own."""
    kept = without_secrets(inherited)
    kept["CUDA_VISIBLE_DEVICES"] = "" if device.type == "cpu" else visible_name(device.index, inherited)
    return kept


def without_secrets(inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that are named like keys."""
    return {name: value for name, value in inherited.items() if not _SECRET.search(name)}


def main(descriptor: int) -> None:
    """The judge's side: report it ready, handle requests side by side, end when the connection closes."""
    connection = Connection(descriptor)
    host = JudgeHost(connection.recv())
    ready = host.start()
    connection.send(ready)
    if ready.value is None:
        return
    sending = threading.Lock()

    def answer(number: int, request: JudgeRequest) -> None:
        reply = host.handle(request)
        with sending, contextlib.suppress(OSError):
            connection.send((number, reply))

    requests = ThreadPoolExecutor(max_workers=ready.value.width, thread_name_prefix="kbevolve-request")
    with contextlib.suppress(EOFError, OSError):
        while (message := connection.recv()) is not None:
            requests.submit(answer, *message)
    _leave(host, requests)


def _leave(host: JudgeHost, requests: ThreadPoolExecutor) -> None:
    """End the judge and its requests under way. What does not end in time is ended with the process."""
    deadline = threading.Timer(_LEAVE_SECONDS * 0.8, os._exit, (1,))
    deadline.daemon = True
    deadline.start()
    host.close()
    requests.shutdown(cancel_futures=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
