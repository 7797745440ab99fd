"""The judge's side of `worker.forkserver`: a process that imports torch once and forks the workers."""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.worker.channel import Channel, Message

#: Seconds until the server is ready (importing torch from a cold disk), and until it has forked a worker.
_START_SECONDS = 120.0
_FORK_SECONDS = 30.0
#: `struct ucred`: process, user, group.
_CREDENTIALS = struct.Struct("3i")


class ForkedWorker:
    """A worker process that a fork server started; has what `Worker` needs of a `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", *, pid: int, server_pid: int) -> None:
        """`pid` is its id in the judge's namespace of processes, `server_pid` in the server's."""
        self.pid = pid
        self._server = server
        self._server_pid = server_pid
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """As `subprocess.Popen.wait`."""
        if self._code is None:
            waiting = select.poll()
            waiting.register(self._handle, select.POLLIN)
            if not waiting.poll(None if timeout is None else 1e3 * timeout):
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            self._code = self._server.exit_code(self._server_pid)
            os.close(self._handle)
        return self._code


class ForkServer:
    """A process that forks workers, for several threads. It ends with the thread that started it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", *, connection: socket.socket, output: IO[bytes], directory: Path
    ) -> None:
        """`process` was just started: the first `fork` waits for it. It prints to `output`, a file."""
        #: In which the workers' directories are made.
        self.directory = directory
        self._process = process
        self._connection = connection
        self._channel = Channel(connection)
        self._output = output
        self._ready = False
        # Requests without an answer: after a timeout a late answer must not be taken for the next one.
        self._unanswered = 0
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        """Whether it can still fork workers."""
        return self._process.poll() is None

    def fork(
        self,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        directory: Path,
        ours: socket.socket,
        theirs: socket.socket,
        output: int,
    ) -> ForkedWorker:
        """A new worker process with its program's arguments, its environment and its directory inside the server's.

        `ours` and `theirs` are the two ends of its connection; it prints to `output`.

        Raises:
            EvaluatorError: the server has died, or the system cannot start another process.
        """
        worker = {"arguments": json.dumps(arguments), "environment": dict(environment), "directory": str(directory)}
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with self._lock:
                self._wait_ready()
                self._connection.settimeout(_FORK_SECONDS)
                answer = self._ask({"fork": worker}, (theirs.fileno(), output))
            if "failed" in answer:
                raise OSError(answer["failed"])
            # The worker sends one byte, whose sender id the kernel gives in the judge's own namespace.
            ours.settimeout(_FORK_SECONDS)
            _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            pid, *_ = next(_CREDENTIALS.unpack(data) for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS)
        except (OSError, EOFError, ValueError, StopIteration) as error:
            raise EvaluatorError(
                f"a worker process did not start: {self._last_line() or error}; "
                "check that `python -c 'import torch'` works"
            ) from None
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return ForkedWorker(self, pid=pid, server_pid=answer["forked"])

    def exit_code(self, server_pid: int) -> int:
        """The exit code of a worker that has ended, whose id is free afterwards; -9 when the server is dead."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            return int(self._ask({"wait": server_pid})["code"])
        return -signal.SIGKILL

    def close(self) -> None:
        """Kill it and all workers that still live, and remove their directories. May be called twice."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._output.close()
        directories.remove(self.directory)

    def _ask(self, request: Message, descriptors: Sequence[int] = ()) -> Message:
        """The answer to this request; late answers to earlier requests are dropped."""
        self._channel.send(request, descriptors)
        self._unanswered += 1
        while True:
            answer, _ = self._channel.receive()
            self._unanswered -= 1
            if not self._unanswered:
                return answer

    def _wait_ready(self) -> None:
        if not self._ready:
            self._connection.settimeout(_START_SECONDS)
            self._channel.receive()
            self._ready = True

    def _last_line(self) -> str:
        self._output.seek(0)
        return "".join(self._output.read().decode(errors="replace").strip().splitlines()[-1:])
