"""The lint in a process of its own: a file that makes it hang, grow or crash is refused, and the judge goes on."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Literal

from kbevolve.configs.syntax import MOST_SOURCE
from kbevolve.evaluators.lint.report import LintReport

#: What one file may take: seconds of a processor, bytes of memory; and seconds by the clock, on the busiest machine.
CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30
_WALL_SECONDS = 60.0
#: Bytes of a reply: some tags and one sentence.
_MOST_REPLY = 1 << 16
_UNREADABLE = "not accepted: the file cannot be read: {}; write shorter and plainer code"


class LintProcess:
    """`lint` with limits of time and memory. Thread-safe: one file at a time, the others wait."""

    def __init__(self) -> None:
        """Start the process, which takes 0.1 s, without waiting for it."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = _start()

    def lint(
        self,
        source: str,
        *,
        allow_library: Literal["full", "partial", "none"] = "full",
        allow_unreadable: bool = False,
        reference_source: str = "",
    ) -> LintReport:
        """As `report.lint`, and refuse what is no Python or passes the limits."""
        if len(source) > MOST_SOURCE:
            return _refused(f"it has {len(source)} characters, at most {MOST_SOURCE} are read")
        request = json.dumps([source, allow_library, allow_unreadable, reference_source]).encode() + b"\n"
        with self._lock:
            reply, signal_number = self._ask(request)
            if not reply and signal_number != signal.SIGXCPU:  # another program may have ended it
                reply, _ = self._ask(request)
        if not reply:
            return _refused(f"it takes more than {CPU_SECONDS} s or {MEMORY_BYTES >> 20} MB, or ends Python's parser")
        tags, refusal, failure = json.loads(reply)
        return _refused(failure) if failure else LintReport(tags=tuple(tags), refusal=refusal)

    def close(self) -> None:
        """End the process. May be called twice."""
        with self._lock:
            self._stop()

    def _ask(self, request: bytes) -> tuple[bytes, int]:
        """The reply; or b"" and the signal that ended the process without one, 0 for none."""
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = _start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(_WALL_SECONDS, process.kill)
        too_late.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            reply = process.stdout.readline(_MOST_REPLY)
        except OSError:  # it ended
            reply = b""
        finally:
            too_late.cancel()
        if reply.endswith(b"\n"):
            return reply, 0
        with suppress(subprocess.TimeoutExpired):  # it is ending by itself
            process.wait(0.2)
        self._stop()
        return b"", max(0, -process.returncode)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # the rest of a request that nothing read
                process.__exit__(None, None, None)


def _refused(why: str) -> LintReport:
    return LintReport(tags=(), refusal=_UNREADABLE.format(why))


def _start() -> subprocess.Popen[bytes]:
    """The program beside this one; it ends when its input does, so it never outlives the judge."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kbevolve.evaluators.lint"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.environ.get("PATH", "")},
        start_new_session=True,
    )
