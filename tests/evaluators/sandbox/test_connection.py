"""Messages, output and exit of a worker are read completely."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox.connection import WorkerConnection
from kbevolve.evaluators.sandbox.forkserver import WorkerProcess
from kbevolve.evaluators.sandbox.launch import LaunchedWorker
from kbevolve.evaluators.worker.channel import LARGEST, frame

Start = Callable[[str], tuple[WorkerConnection, "subprocess.Popen[bytes]"]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that run some code, with `connection` as their end of a connection."""
    opened: list[tuple[WorkerConnection, subprocess.Popen[bytes]]] = []

    def start_one(code: str) -> tuple[WorkerConnection, "subprocess.Popen[bytes]"]:
        ours, theirs = socket.socketpair()
        output, written = os.pipe()
        head = f"import os, signal, socket, sys, time\nconnection = socket.socket(fileno={theirs.fileno()})\n"
        process = subprocess.Popen(
            [sys.executable, "-c", head + code], pass_fds=(theirs.fileno(),), stdout=written, stderr=written
        )
        theirs.close()
        os.close(written)
        worker = WorkerProcess(process.pid, process.wait)
        launched = LaunchedWorker(process=worker, connection=ours, output=output, directory=tmp_path, bubblewrap=False)
        connection = WorkerConnection(launched)
        opened.append((connection, process))
        return connection, process

    yield start_one
    for connection, process in opened:
        process.kill()
        process.wait()
        connection.close()


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it has ended, and leave its exit to the connection."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_reply_that_arrives_with_the_exit_is_a_reply(start: Start) -> None:
    connection, process = start(f"connection.sendall({frame({'ok': True})!r})\n")
    ended(process)
    connection.read(10)
    assert connection.next_message() == {"ok": True}
    assert connection.next_message() is None
    with pytest.raises(Rejection, match="exit code 0"):
        connection.read(10)
    assert not connection.alive


def test_a_message_may_arrive_in_parts_and_two_at_once(start: Start) -> None:
    one, two = frame({"number": 1, "text": "x" * 100_000}), frame({"number": 2})
    connection, _ = start(
        f"connection.sendall({one[:7]!r})\ntime.sleep(0.2)\nconnection.sendall({one[7:]!r} + {two!r})\ntime.sleep(60)\n"
    )
    found = []
    while len(found) < 2:
        connection.read(10)
        while (message := connection.next_message()) is not None:
            found.append(message["number"])
    assert found == [1, 2]


@pytest.mark.parametrize(
    "data", [(LARGEST + 1).to_bytes(4, "big"), (3).to_bytes(4, "big") + b"{x}", frame({})[:4] + b"[]"]
)
def test_bytes_that_are_no_message_are_a_crash(start: Start, data: bytes) -> None:
    connection, _ = start(f"connection.sendall({data!r})\ntime.sleep(60)\n")
    connection.read(10)
    with pytest.raises(Rejection, match="no reply") as caught:
        connection.next_message()
    assert caught.value.verdict is Verdict.CRASHED


def test_the_signal_and_the_last_output_are_reported(start: Start) -> None:
    connection, process = start("print('almost', flush=True)\nos.kill(os.getpid(), signal.SIGFPE)\n")
    ended(process)
    with pytest.raises(Rejection, match=r"SIGFPE.*almost"):
        connection.read(10)
    assert "almost" in connection.printed.text


def test_a_worker_that_does_not_read_differs_from_a_dead_one(start: Start) -> None:
    connection, process = start("time.sleep(60)\n")
    with pytest.raises(TimeoutError):
        connection.send({"text": "x" * (4 << 20)}, seconds=0.2)
    process.send_signal(signal.SIGKILL)
    ended(process)
    with pytest.raises(Rejection, match="SIGKILL"):
        connection.send({}, seconds=5)
