"""The process group of a worker and its helpers: paused, resumed, killed together."""

import contextlib
import os
import signal
import threading
import time

from kbevolve.evaluators.sandbox.process_table import is_stopped

#: Seconds that stopping may take. It takes microseconds, and longer while the process is in an uninterruptible call.
_STOP_SECONDS = 5.0


class ProcessGroup:
    """The process group that a worker leads. Any thread may pause or kill it while another waits for its reply."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._signalling = threading.Lock()
        # The moment of the current pause (None while it runs), and the seconds of all earlier pauses.
        self._paused_at: float | None = None
        self._paused_seconds = 0.0
        self._reaped = False

    @property
    def clock(self) -> float:
        """Seconds by a monotonic clock that does not advance while the group is paused."""
        with self._signalling:
            return (time.monotonic() if self._paused_at is None else self._paused_at) - self._paused_seconds

    def pause(self, *, wait: bool = True) -> None:
        """Stop it. With `wait`, returns when its leader has stopped. No effect on a dead one."""
        with self._signalling:
            if self._signal(signal.SIGSTOP) and self._paused_at is None:
                self._paused_at = time.monotonic()
        if wait:
            deadline = time.monotonic() + _STOP_SECONDS
            while not is_stopped(self.leader) and time.monotonic() < deadline:
                time.sleep(0)

    def resume(self) -> None:
        """Let it continue."""
        with self._signalling:
            if self._paused_at is not None:
                self._paused_seconds += time.monotonic() - self._paused_at
                self._paused_at = None
            self._signal(signal.SIGCONT)

    def resume_forked(self) -> None:
        """Resume a process that missed `resume` because it was being forked.

        Linux passes a group's SIGSTOP on to such a process, but not the SIGCONT after it (`prepare_signal` in
        kernel/signal.c drops an unhandled SIGCONT before it reaches forks in progress).
        """
        with self._signalling:
            if self._paused_seconds and self._paused_at is None:
                self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all of it."""
        self._signal(signal.SIGKILL)

    def mark_reaped(self) -> None:
        """Send no more signals: the leader's exit was collected, so another process may get its id."""
        self._reaped = True

    def _signal(self, number: signal.Signals) -> bool:
        """Whether there was a group to signal."""
        if self._reaped:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, number)
            return True
        return False
