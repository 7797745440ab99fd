"""The judge's end of the line to a worker, whose messages, print and death come from an untrusted process."""

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
from kbevolve.evaluators.sandbox.output import CapturedOutput, signal_words
from kbevolve.evaluators.worker.channel import HEADER_BYTES, LARGEST, Channel, Message

#: Seconds between the worker's hanging up and its being taken for alive.
_DEATH_SECONDS = 2.0
#: bubblewrap tells that a signal ended its program as shells do, by an exit code above this.
_SIGNALLED = 128


class WorkerConnection:
    """Tells a worker something and hears whatever comes from it."""

    def __init__(self, started: LaunchedWorker) -> None:
        self._process = started.process
        self._connection = started.connection
        self._output = started.output
        self._bubblewrap = started.led_by_bubblewrap
        #: What it printed so far.
        self.printed = CapturedOutput()
        self._received = bytearray()
        # A helper that it left behind may hold its ends of both open when it is dead.
        self._handle = os.pidfd_open(started.process.pid)
        self._selector = selectors.DefaultSelector()
        for source in (self._connection, self._output, self._handle):
            self._selector.register(source, selectors.EVENT_READ)

    @property
    def alive(self) -> bool:
        """Whether the worker has not ended yet; not to be asked when the line is closed."""
        return not select.select([self._handle], [], [], 0)[0]

    def tell(self, message: Message, *, seconds: float, descriptors: Sequence[int] = ()) -> None:
        """Send one message, and file descriptors with it.

        Raises:
            TimeoutError: it does not listen.
            Rejection: it died or hung up.
            ValueError: the message is too large.
        """
        self._connection.settimeout(seconds)
        try:
            Channel(self._connection).send(message, descriptors)
        except TimeoutError:
            raise
        except OSError:
            raise self._death() from None

    def hear(self, seconds: float) -> None:
        """Take in what comes within so many seconds; returns as soon as something did.

        Raises:
            Rejection: it died or hung up.
        """
        speaking = {key.fileobj for key, _ in self._selector.select(seconds)}
        if self._output in speaking:
            self._read_output()
        if speaking - {self._output}:  # its last message and its end may come together
            self._read_connection()

    def next_message(self) -> Message | None:
        """The next whole message of those that were heard, None until there is one.

        Raises:
            Rejection: what came is no message.
        """
        if len(self._received) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._received[:HEADER_BYTES], "big")
        if size > LARGEST:
            raise _gibberish()
        if len(self._received) < HEADER_BYTES + size:
            return None
        body = bytes(self._received[HEADER_BYTES : HEADER_BYTES + size])
        del self._received[: HEADER_BYTES + size]
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise _gibberish()
        return message

    def close(self) -> None:
        """Hang up on a worker that is dead."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            self._selector.close()
        self._connection.close()
        os.close(self._handle)
        os.close(self._output)

    def _read_connection(self) -> None:
        try:
            # What it said before it died comes first. With a time limit, Python would wait for words that a helper,
            # which holds the other end, never says.
            self._connection.setblocking(False)
            data = self._connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            raise self._death()
        self._received += data

    def _read_output(self) -> None:
        data = os.read(self._output, 1 << 16)
        self.printed.add(data)
        if not data:  # closed by the candidate, or the process is ending
            self._selector.unregister(self._output)

    def _death(self) -> Rejection:
        """What to say about a worker that hung up."""
        try:
            code = self._process.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return Rejection(Verdict.CRASHED, "it closed the connection to the judge")
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            while data := os.read(self._output, 1 << 16):
                self.printed.add(data)
        said = self.printed.text.strip()
        said = f"; it printed last: {said[-500:]}" if said else ""
        if self._bubblewrap and code > _SIGNALLED:
            code = _SIGNALLED - code
        if code >= 0:
            return Rejection(Verdict.CRASHED, f"its process ended itself with exit code {code} before answering{said}")
        return Rejection(Verdict.CRASHED, f"its process died of {signal_words(-code)}{said}")


def _gibberish() -> Rejection:
    return Rejection(Verdict.CRASHED, "it wrote to the judge's connection something that is no reply")
