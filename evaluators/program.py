"""A program of ours in a process of its own: it runs a problem's file, so it may hang, grow or crash.

It may work beside a judge: it is paused while any process times a kernel on its device (`device.lock`).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import IO, Self

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox.process_group import ProcessGroup

#: Seconds between two looks whether it has ended, or another process wants to time a kernel, which waits so long.
_POLL_SECONDS = 0.005


class ProgramError(Exception):
    """The program failed, took too long or was ended; the message is one line."""


class Program:
    """``python -m module``, which starts at once; leaving the context kills its process group.

    Its standard input is open until `wait` is called; before that it may not use the device.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        device: Device | None = None,
    ) -> None:
        """Start it.

        Args:
            module: a module of kbevolve.
            arguments: of the command line.
            seconds: limit of `wait` by the clock, pauses not counted.
            environment: variables beside this process's own.
            device: that it may use while nothing is timed there; None for a program that disturbs no judge.
        """
        self._seconds = seconds
        self._device = device
        self._ended = Event()
        self._output: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with it)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._output,
            env={**os.environ, **(environment or {})},
            # A group of its own, so that the processes that it started end with it.
            start_new_session=True,
        )
        self._group = ProcessGroup(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it with all that it started, in whatever thread `wait` waits."""
        self._ended.set()
        self._kill()
        self._output.close()

    @property
    def closed(self) -> bool:
        """Whether its context was left."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Let it use the device until it ends, but never while a kernel is timed there.

        Raises:
            ProgramError: with the last line of stderr, or the time that was not enough.
        """
        left = self._seconds
        while self._process.poll() is None:
            with self._shared():
                began = time.monotonic()
                self._input.close()
                self._group.resume()
                while self._process.poll() is None and not self._is_wanted():
                    if time.monotonic() - began > left:
                        self._kill()
                        raise ProgramError(f"not done after {self._seconds:g} s")
                    self._group.resume_forked()
                    time.sleep(_POLL_SECONDS)
                left -= time.monotonic() - began
                if self._process.poll() is None:
                    self._group.pause()
        if self.closed:
            raise ProgramError("it was ended")
        if self._process.returncode != 0:
            self._output.seek(0)
            last = self._output.read().strip().splitlines()[-1:]
            raise ProgramError(last[0] if last else f"its process ended with status {self._process.returncode}")

    def _kill(self) -> None:
        if self._process.poll() is None:
            self._group.kill()
        self._input.close()
        self._process.wait()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it is a pipe"
        return self._process.stdin

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Hold the device together with others. A process that holds it alone must not keep the end of this one."""
        if self._device is None:
            yield
            return
        with ExitStack() as held:
            try:
                held.enter_context(lock.shared(self._device, self._ended))
            except EvaluatorError:
                raise ProgramError("it was ended") from None
            yield

    def _is_wanted(self) -> bool:
        return self._device is not None and lock.is_wanted(self._device)


def run_program(
    module: str, arguments: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None
) -> None:
    """Run a program to its end; a time-out or an interruption kills its process group. Raises as `Program.wait`."""
    with Program(module, arguments, seconds=seconds, environment=environment) as program:
        program.wait()
