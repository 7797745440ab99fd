"""What a worker says is heard to its last word."""

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
from kbevolve.evaluators.sandbox.launch import LaunchedWorker
from kbevolve.evaluators.worker.channel import LARGEST, frame

Speaker = Callable[[str], tuple[WorkerConnection, "subprocess.Popen[bytes]"]]


@pytest.fixture
def speaker(tmp_path: Path) -> Iterator[Speaker]:
    """Lines to processes that run some code; `line` is their end of the connection."""
    opened: list[tuple[WorkerConnection, subprocess.Popen[bytes]]] = []

    def speak(code: str) -> tuple[WorkerConnection, "subprocess.Popen[bytes]"]:
        ours, theirs = socket.socketpair()
        output, written = os.pipe()
        head = f"import os, signal, socket, sys, time\nline = socket.socket(fileno={theirs.fileno()})\n"
        process = subprocess.Popen(
            [sys.executable, "-c", head + code], pass_fds=(theirs.fileno(),), stdout=written, stderr=written
        )
        theirs.close()
        os.close(written)
        line = WorkerConnection(
            LaunchedWorker(process=process, connection=ours, output=output, directory=tmp_path, bubblewrap=False),
        )
        opened.append((line, process))
        return line, process

    yield speak
    for line, process in opened:
        process.kill()
        process.wait()
        line.close()


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Wait until it has ended, and leave it to be waited for by the line."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_reply_that_comes_together_with_the_end_is_a_reply(speaker: Speaker) -> None:
    line, process = speaker(f"line.sendall({frame({'ok': True})!r})\n")
    ended(process)
    line.hear(10)
    assert line.next_message() == {"ok": True}
    assert line.next_message() is None
    with pytest.raises(Rejection, match="exit code 0"):
        line.hear(10)
    assert not line.alive


def test_a_message_may_come_in_parts_and_two_at_once(speaker: Speaker) -> None:
    one, two = frame({"number": 1, "text": "x" * 100_000}), frame({"number": 2})
    line, _ = speaker(
        f"line.sendall({one[:7]!r})\ntime.sleep(0.2)\nline.sendall({one[7:]!r} + {two!r})\ntime.sleep(60)\n"
    )
    found = []
    while len(found) < 2:
        line.hear(10)
        while (message := line.next_message()) is not None:
            found.append(message["number"])
    assert found == [1, 2]


@pytest.mark.parametrize(
    "said", [(LARGEST + 1).to_bytes(4, "big"), (3).to_bytes(4, "big") + b"{x}", frame({})[:4] + b"[]"]
)
def test_what_is_no_message_is_a_crash(speaker: Speaker, said: bytes) -> None:
    line, _ = speaker(f"line.sendall({said!r})\ntime.sleep(60)\n")
    line.hear(10)
    with pytest.raises(Rejection, match="no reply") as caught:
        line.next_message()
    assert caught.value.verdict is Verdict.CRASHED


def test_the_last_words_are_told_with_the_signal_that_ended_it(speaker: Speaker) -> None:
    line, process = speaker("print('almost', flush=True)\nos.kill(os.getpid(), signal.SIGFPE)\n")
    ended(process)
    with pytest.raises(Rejection, match=r"SIGFPE.*almost"):
        line.hear(10)
    assert "almost" in line.printed.text


def test_who_does_not_listen_is_told_from_who_is_dead(speaker: Speaker) -> None:
    line, process = speaker("time.sleep(60)\n")
    with pytest.raises(TimeoutError):
        line.tell({"text": "x" * (4 << 20)}, seconds=0.2)
    process.send_signal(signal.SIGKILL)
    ended(process)
    with pytest.raises(Rejection, match="SIGKILL"):
        line.tell({}, seconds=5)
