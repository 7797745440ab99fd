"""A fork server that a test's own code starts, without a judge."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbevolve.evaluators.worker.channel import Channel

ROOT = str(Path(__file__).parents[3])


@contextmanager
def serving(code: str) -> Iterator[Channel]:
    """The connection to a server that this code starts, which is ready; it ends with its connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        ours.settimeout(60)
        serving = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))},
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        assert channel.receive()[0] == {"ok": True}
        yield channel
    assert serving.wait(10) == 0, "it ends when the judge closes the connection"
