"""The judge's side of `worker.fork_server`: a process that bears workers, so that torch is imported once."""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.worker.channel import Channel, Message

#: Seconds that the fork_server may take to be ready (importing torch from a cold disk), and to bear a worker.
_START_SECONDS = 120.0
_BIRTH_SECONDS = 30.0
#: `struct ucred`: process, user, group.
_CREDENTIALS = struct.Struct("3i")


class ForkedWorker:
    """A process that a fork_server bore; what `Worker` asks of a `subprocess.Popen`."""

    def __init__(self, fork_server: "ForkServer", *, pid: int, name: int) -> None:
        """`pid` is its number here, `name` the number that the fork_server knows it by."""
        self.pid = pid
        self._fork_server = fork_server
        self._name = name
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, minus the number of the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: it still lives.
        """
        if self._code is None:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            if not waiting.poll(None if timeout is None else 1e3 * timeout):
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._code = self._fork_server.reap(self._name)
            os.close(self._handle)
        return self._code


class ForkServer:
    """A process that bears workers. May be used by several threads; it dies with the thread that made it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        connection: socket.socket,
        theirs: socket.socket,
        environment: Mapping[str, str],
        folder: Path,
    ) -> None:
        """Start it; it is ready when the first worker is asked for.

        Args:
            command: the worker program with a fork_server's orders, in bubblewrap where that is used.
            connection: the judge's end.
            theirs: the fork_server's end, by the number that the orders tell.
            environment: what libraries read when they are loaded.
            folder: its home, in which the workers' directories lie.
        """
        #: In which the workers' directories lie.
        self.folder = folder
        self._connection = connection
        self._channel = Channel(connection)
        self._ready = False
        # Answers that are due: one that nobody waited for any longer must not be taken for the next.
        self._due = 0
        self._lock = threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the fork_server)
        self._process = subprocess.Popen(
            command,
            cwd=folder / "work",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        """Whether it can still bear workers."""
        return self._process.poll() is None

    def bear(
        self,
        orders: Mapping[str, Any],
        environment: Mapping[str, str],
        directory: Path,
        ours: socket.socket,
        theirs: socket.socket,
        output: int,
    ) -> ForkedWorker:
        """A new worker process.

        Args:
            orders: the worker program's.
            environment: its own.
            directory: its own, in `folder`.
            ours: the judge's end of its connection.
            theirs: its end.
            output: where its output goes.

        Raises:
            EvaluatorError: the fork_server has died, or the system has no process left.
        """
        bear = {"orders": json.dumps(orders), "environment": dict(environment), "directory": str(directory)}
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with self._lock:
                self._wait_ready()
                self._connection.settimeout(_BIRTH_SECONDS)
                answer = self._asked({"bear": bear}, (theirs.fileno(), output))
            if "failed" in answer:
                raise OSError(answer["failed"])
            ours.settimeout(_BIRTH_SECONDS)
            _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            (pid, _, _), *_ = [
                _CREDENTIALS.unpack(data) for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS
            ]
        except (OSError, EOFError, ValueError) as error:
            raise EvaluatorError(
                f"a worker process did not start: {self._last_line() or error}; "
                "check that `python -c 'import torch'` works"
            ) from None
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return ForkedWorker(self, pid=pid, name=answer["born"])

    def reap(self, name: int) -> int:
        """The exit code of a process that has ended, whose number is free afterwards; -9 when the server is dead."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            return int(self._asked({"reap": name})["code"])
        return -signal.SIGKILL

    def close(self) -> None:
        """End it, and with it all workers that still live. May be called twice."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._said.close()

    def _asked(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """Its answer; those that came too late for earlier requests are passed over."""
        self._channel.send(request, descriptors)
        self._due += 1
        while True:
            answer, _ = self._channel.receive()
            self._due -= 1
            if not self._due:
                return answer

    def _wait_ready(self) -> None:
        if not self._ready:
            self._connection.settimeout(_START_SECONDS)
            self._channel.receive()
            self._ready = True

    def _last_line(self) -> str:
        self._said.seek(0)
        return "".join(self._said.read().decode(errors="replace").strip().splitlines()[-1:])
