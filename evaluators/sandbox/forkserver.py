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
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.sandbox import directories
from kbevolve.evaluators.worker.channel import Channel, Message

#: Seconds until the server is ready (importing torch from a cold disk), until a worker has introduced itself, and until
#: an unused server has ended with all that its workers left.
_START_SECONDS = 120.0
_FORK_SECONDS = 30.0
_END_SECONDS = 5.0
#: `struct ucred`: process, user, group.
_CREDENTIALS = struct.Struct("3i")


class WorkerProcess:
    """A worker process, which is no child of the judge; has what `Worker` needs of a `subprocess.Popen`."""

    def __init__(self, pid: int, collect: Callable[[], int]) -> None:
        """`pid` is its id in the judge's namespace of processes; `collect` frees it when it has ended."""
        self.pid = pid
        self._collect = collect
        self._handle = os.pidfd_open(pid)
        self._code: int | None = None
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """As `subprocess.Popen.wait`; several threads may wait at once."""
        with self._lock:
            if self._code is None:
                waiting = select.poll()
                waiting.register(self._handle, select.POLLIN)
                if not waiting.poll(None if timeout is None else 1e3 * timeout):
                    raise subprocess.TimeoutExpired("worker", timeout or 0.0)
                self._code = self._collect()
                os.close(self._handle)  # once: another file may have its number afterwards
            return self._code


@contextlib.contextmanager
def introduced(ours: socket.socket) -> Iterator[Callable[[], int]]:
    """Yields a function that waits for a worker at the other end of `ours`, and returns its id in our namespace.

    The worker sends one byte, whose sender Linux names. Raises `OSError` or `StopIteration` when it does not.
    """
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def sender() -> int:
        ours.settimeout(_FORK_SECONDS)
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        pid, *_ = next(_CREDENTIALS.unpack(data) for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS)
        return int(pid)

    yield sender
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)


def did_not_start(why: object) -> EvaluatorError:
    """The error when a worker process did not start."""
    return EvaluatorError(f"a worker process did not start: {why}; check that `python -c 'import torch'` works")


class ForkServer:
    """A process that forks workers, for several threads, below a supervisor (`worker.supervisor`)."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        *,
        connection: socket.socket,
        output: IO[bytes],
        directory: Path,
        inductor: bool = False,
    ) -> None:
        """`process` was just started: the first `fork` waits for it. It prints to `output`, a file."""
        #: Whether its workers have imported Inductor.
        self.inductor = inductor
        #: In which the workers' directories are made.
        self.directory = directory
        self._files: Mapping[str, Sequence[str]] = {}
        self._process = process
        self._connection = connection
        self._channel = Channel(connection)
        self._output = output
        self._ready = False
        # Requests without an answer: after a timeout a late answer must not be taken for the next one.
        self._unanswered = 0
        self._lock = threading.Lock()
        # Whether it was asked for a worker.
        self._forks = threading.Event()
        # It ends with its last reference, too: a command that stops early has no judge that closes it.
        self._end = weakref.finalize(self, _end, process, self._forks, connection, output, directory)

    @property
    def alive(self) -> bool:
        """Whether it can still fork workers."""
        return self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether a worker can be forked without waiting; also when it has ended, and none can."""
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        return self._ready or bool(waiting.poll(0))

    def allow(self, files: Mapping[str, Sequence[str]]) -> None:
        """Give its workers these rights, as `Permissions.for_landlock` makes them for this server's directory."""
        self._files = files

    def fork(
        self,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        directory: Path,
        ours: socket.socket,
        theirs: socket.socket,
        output: int,
    ) -> WorkerProcess:
        """A new worker process with its program's arguments, its environment and its directory inside the server's.

        `ours` and `theirs` are the two ends of its connection; it prints to `output`.

        Raises:
            EvaluatorError: the server has died, or the system cannot start another process.
        """
        worker = {"arguments": json.dumps(arguments), "environment": dict(environment), "directory": str(directory)}
        try:
            with introduced(ours) as sender:
                with self._lock:
                    self._wait_ready()
                    self._forks.set()
                    self._connection.settimeout(_FORK_SECONDS)
                    answer = self._ask({"fork": worker}, (theirs.fileno(), output))
                if "failed" in answer:
                    raise OSError(answer["failed"])
                pid = sender()
        except (OSError, EOFError, ValueError, StopIteration) as error:
            raise did_not_start(self._last_line() or error) from None
        return WorkerProcess(pid, lambda: self.exit_code(answer["forked"]))

    def files_of(self, directory: Path) -> dict[str, list[str]]:
        """The rights of a worker with this directory. Finding out what compilers and libraries need takes 10 ms."""
        own = {str(self.directory): str(directory)}
        return {right: [own.get(path, path) for path in paths] for right, paths in self._files.items()}

    def exit_code(self, server_pid: int) -> int:
        """The exit code of a worker that has ended, whose id is free afterwards; -9 when the server is dead."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            return int(self._ask({"wait": server_pid})["code"])
        return -signal.SIGKILL

    def close(self) -> None:
        """End it with all workers that still live, and remove their directories. May be called twice."""
        self._end()

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


def _end(
    process: "subprocess.Popen[bytes]",
    forks: threading.Event,
    connection: socket.socket,
    output: IO[bytes],
    directory: Path,
) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # the server ends, and its supervisor kills what is left
    try:
        process.wait(_END_SECONDS if forks.is_set() else 0.0)  # it may still import torch
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    connection.close()
    output.close()
    directories.remove(directory)
