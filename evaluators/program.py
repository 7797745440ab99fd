"""A program of ours in a process of its own: it runs a problem's file, so it may hang, grow or crash."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence


class ProgramError(Exception):
    """The program failed or took too long; the message is one line."""


def run_program(
    module: str, arguments: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None
) -> None:
    """Run ``python -m module`` to its end; a time-out or an interruption kills its process group.

    Args:
        module: a module of kbevolve.
        arguments: of the command line.
        seconds: limit by the clock.
        environment: variables beside this process's own.

    Raises:
        ProgramError: with the last line of stderr, or the time that was not enough.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {})},
        # A group of its own, so that the processes that it started end with it.
        start_new_session=True,
    )
    try:
        _, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ProgramError(f"not done after {seconds:g} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        last = complaint.strip().splitlines()[-1:] or [f"its process ended with status {process.returncode}"]
        raise ProgramError(last[0])
