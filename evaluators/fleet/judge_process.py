"""A judge in a process of its own on this machine: one for each device.

It is started afresh (never forked: a fork of a process with threads or with CUDA is broken), hears orders over a socket
pair and ends when that closes, however this process ended. Ctrl-C in a terminal goes to this process alone, which then
ends the judges in order.
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
from kbevolve.evaluators.fleet.judge_host import (
    Commission,
    Introduction,
    JudgeDied,
    JudgeHost,
    Order,
    Reply,
    read,
    sent,
    silent,
)
from kbevolve.evaluators.sandbox.output import describe_signal

#: Seconds that starting may take: importing torch from a cold disk takes tens of seconds.
_START_SECONDS = 120.0
#: Seconds between two looks at whether a start is still wanted.
_LOOK_SECONDS = 0.2
#: Seconds that a judge has to end its workers and remove their directories; then it is killed.
_LEAVE_SECONDS = 10.0
#: Names of variables that hold keys; a judge needs none.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


class JudgeProcess:
    """Implements `FarJudge` by a process of this machine."""

    introduction: Introduction

    def __init__(self, commission: Commission, device: Device, *, given_up: Callable[[], bool] = lambda: False) -> None:
        """Start it, and wait until it is ready.

        Args:
            commission: what the judge is made from; its device is set here.
            device: the device as this process knows it.
            given_up: asked several times a second; when it says yes, starting ends.

        Raises:
            EvaluatorError: the device is not there.
            JudgeDied: it did not start.
        """
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read when it died, closed in `close`
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kbevolve.evaluators.fleet.judge_process", str(theirs.fileno())],
                env=environment(device, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            self._said.close()
            raise
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._number = 0
        self._closed = False
        own = "cpu" if device.type == "cpu" else "cuda:0"  # the only one that it sees
        try:
            self._connection.send(replace(commission, device=own, search_path=tuple(sys.path)))
            self.introduction = self._await_introduction(given_up)
        except BaseException as failure:
            death = self._last_words() if isinstance(failure, EOFError | OSError) else ""
            self.close()
            if death:
                raise JudgeDied(death) from None
            raise
        self._reader = threading.Thread(target=self._read_replies, name="kbevolve-judge-replies", daemon=True)
        self._reader.start()

    def ask(self, order: Order, *, seconds: float) -> Any:
        """What the judge found; blocks.

        Raises:
            JudgeDied: it died, before or meanwhile, or it gave no answer within so many seconds.
            KBEvolveError: whatever the judge raised on purpose.
        """
        answer: Future[Reply] = Future()
        with self._sending:
            if self._closed:
                raise JudgeDied("it was ended")
            self._number += 1
            number = self._number
            self._waiting[number] = answer
            try:
                self._connection.send((number, sent(order)))
            except OSError:
                self._waiting.pop(number, None)
                raise JudgeDied(self._last_words()) from None
        try:
            return read(answer.result(seconds))
        except TimeoutError:
            self._process.kill()  # it would not hear that it shall end
            raise silent(seconds) from None

    def close(self) -> None:
        """End it: in order when it listens, by force when it does not."""
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
        self._said.close()

    def _await_introduction(self, given_up: Callable[[], bool]) -> Introduction:
        patience = time.monotonic() + _START_SECONDS
        while not self._connection.poll(_LOOK_SECONDS):
            if given_up():
                raise EvaluatorError("starting a judge was given up")
            if time.monotonic() > patience:
                raise JudgeDied(f"it was not ready after {_START_SECONDS:.0f} s")
        introduction: Introduction = read(self._connection.recv())
        return introduction

    def _read_replies(self) -> None:
        while True:
            try:
                number, reply = self._connection.recv()
            except (EOFError, OSError):
                break
            self._waiting.pop(number).set_result(reply)
        death = self._last_words()
        with self._sending:  # whoever asks later hears it from the socket, whose other end nobody holds
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for answer in waiting:
            answer.set_exception(JudgeDied(death))

    def _last_words(self) -> str:
        """How it ended, in one line, with what it printed last."""
        try:
            code = self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return "it hung up"
        how = (
            f"its process died of {describe_signal(-code)}" if code < 0 else f"its process ended with exit code {code}"
        )
        with contextlib.suppress(OSError, ValueError):
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
            lines = self._said.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f"{how}; it said last: {lines[-1][:300]}"
        return how


def environment(device: Device, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a judge's environment holds: everything but keys, and of the GPUs its own alone."""
    kept = without_secrets(inherited)
    kept["CUDA_VISIBLE_DEVICES"] = "" if device.type == "cpu" else visible_name(device.index, inherited)
    return kept


def without_secrets(inherited: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that are named like keys."""
    return {name: value for name, value in inherited.items() if not _SECRET.search(name)}


def main(descriptor: int) -> None:
    """The judge's side: introduce it, carry out orders side by side, leave when nobody is there any more."""
    connection = Connection(descriptor)
    host = JudgeHost(connection.recv())
    introduction = host.introduce()
    connection.send(introduction)
    if introduction.found is None:
        return
    sending = threading.Lock()

    def answer(number: int, order: Order) -> None:
        reply = host.carry_out(order)
        with sending, contextlib.suppress(OSError):
            connection.send((number, reply))

    orders = ThreadPoolExecutor(max_workers=introduction.found.width, thread_name_prefix="kbevolve-order")
    with contextlib.suppress(EOFError, OSError):
        while (message := connection.recv()) is not None:
            orders.submit(answer, *message)
    _leave(host, orders)


def _leave(host: JudgeHost, orders: ThreadPoolExecutor) -> None:
    """End the judge and with it what is under way; whatever does not end in time is left to the kernel."""
    patience = threading.Timer(_LEAVE_SECONDS * 0.8, os._exit, (1,))
    patience.daemon = True
    patience.start()
    host.close()
    orders.shutdown(cancel_futures=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
