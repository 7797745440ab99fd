"""`kbevolve browse` as a process: it serves, follows signals, and refuses in one line."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.small_archive import Sample


def test_it_serves_until_ctrl_c(small_archive: Sample) -> None:
    command = [sys.executable, "-m", "kbevolve", "browse", "--archive", small_archive.path, "--port", "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it runs in the background with Ctrl-C ignored, and that is handed on.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as server:
        assert server.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert address
        with urllib.request.urlopen(f"{address[0]}runs/latest") as page:
            assert small_archive.run.id in page.read().decode()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert errors == ""


def test_a_port_that_is_taken_and_a_missing_archive_are_one_line(
    small_archive: Sample, kbevolve: Callable[..., Any], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = kbevolve("browse", "--archive", small_archive.path, "--port", taken.getsockname()[1])
    assert "cannot listen on 127.0.0.1" in done.err
    assert "no archive at" in kbevolve("browse", "--archive", tmp_path / "none.db").err
