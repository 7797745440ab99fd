"""The judge's end of the connection to a worker: messages, output and exit of an untrusted process."""

import contextlib
import json
import os
import select
import selectors
import subprocess
from collections.abc import Sequence

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.launch import LaunchedWorker
from kbevolve.evaluators.sandbox.output import CapturedOutput, describe_signal
from kbevolve.evaluators.worker.channel import HEADER_BYTES, LARGEST, Channel, Message

#: Seconds between a closed connection and the conclusion that the worker still lives.
_EXIT_SECONDS = 2.0
#: Bytes that may wait to be read: the largest message, and a part of the next. A worker sends one and waits.
_MOST_UNREAD = HEADER_BYTES + LARGEST + (1 << 20)
#: Objects and lists of a message, each of which takes 70 bytes here; in the texts of a kernel are some thousands.
_MOST_BRACKETS = 500_000
#: Characters of the captured output that an error message quotes.
_QUOTED = 500


class WorkerConnection:
    """Sends messages to a worker, and reads its messages and its output."""

    def __init__(self, launched: LaunchedWorker) -> None:
        self._process = launched.process
        self._connection = launched.connection
        self._output = launched.output
        #: Its standard output and error so far.
        self.printed = CapturedOutput()
        self._received = bytearray()
        # The process itself is watched, too: a leaked helper may keep the other ends of socket and pipe open.
        self._handle = os.pidfd_open(launched.process.pid)
        self._selector = selectors.DefaultSelector()
        for source in (self._connection, self._output, self._handle):
            self._selector.register(source, selectors.EVENT_READ)

    @property
    def alive(self) -> bool:
        """Whether the worker has not exited yet. Do not ask after `close`."""
        return not select.select([self._handle], [], [], 0)[0]

    def send(self, message: Message, *, seconds: float, descriptors: Sequence[int] = ()) -> None:
        """Send one message, and file descriptors with it.

        Raises:
            TimeoutError: the worker did not read it in time.
            Rejection: the worker exited or closed the connection.
        """
        self._connection.settimeout(seconds)
        try:
            Channel(self._connection).send(message, descriptors)
        except TimeoutError:
            raise
        except OSError:
            raise self._closed() from None

    def read(self, seconds: float) -> None:
        """Read what arrives within so many seconds; Rejection when the worker exited or closed the connection."""
        readable = {key.fileobj for key, _ in self._selector.select(seconds)}
        if self._output in readable:
            self._read_output()
        if readable - {self._output}:  # the last message and the exit may arrive together
            self._read_connection()

    def next_message(self) -> Message | None:
        """The next complete message of those that were read; None until there is one, Rejection for other bytes."""
        if len(self._received) < HEADER_BYTES:
            return None
        end = HEADER_BYTES + int.from_bytes(self._received[:HEADER_BYTES], "big")
        if end > HEADER_BYTES + LARGEST:
            raise _malformed()
        if len(self._received) < end:
            return None
        body = bytes(self._received[HEADER_BYTES:end])
        del self._received[:end]
        message = None
        with contextlib.suppress(ValueError, RecursionError):
            if body.count(b"{") + body.count(b"[") <= _MOST_BRACKETS:
                message = json.loads(body)
        if not isinstance(message, dict):
            raise _malformed()
        return message

    def close(self) -> None:
        """Release the descriptors, after the worker exited."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._selector.close()
        self._connection.close()
        os.close(self._handle)
        os.close(self._output)

    def _read_connection(self) -> None:
        try:
            # Messages sent before the exit are read first. Non-blocking, because with a time limit Python would wait
            # for data that a helper, which holds the other end, never sends.
            self._connection.setblocking(False)
            data = self._connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            raise self._closed()
        self._received += data
        if len(self._received) > _MOST_UNREAD:
            raise _malformed()

    def _read_output(self) -> None:
        data = os.read(self._output, 1 << 16)
        self.printed.add(data)
        if not data:  # closed by the candidate, or the process is exiting
            self._selector.unregister(self._output)

    def _closed(self) -> Rejection:
        """Why the worker closed the connection."""
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return Rejection(Verdict.CRASHED, "it closed the connection to the judge")
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            while data := os.read(self._output, 1 << 16):
                self.printed.add(data)
        text = self.printed.text.strip()
        quoted = f"; it printed last: {text[-_QUOTED:]}" if text else ""
        if code < 0:
            return Rejection(Verdict.CRASHED, f"its process died of {describe_signal(-code)}{quoted}")
        return Rejection(Verdict.CRASHED, f"its process ended itself with exit code {code} before answering{quoted}")


def _malformed() -> Rejection:
    return Rejection(Verdict.CRASHED, "it wrote to the judge's connection something that is no reply")
