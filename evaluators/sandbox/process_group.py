"""A worker and its helpers together: stopped where they are, let go on, ended."""

import contextlib
import os
import signal
import threading
import time

from kbevolve.evaluators.sandbox import process_table

#: Seconds that a stopped worker has to stand; it needs microseconds, more while it waits for what it cannot leave.
_STAND_SECONDS = 5.0


class ProcessGroup:
    """The process group that a worker leads. Any thread may stop or end it while another one waits for its answer."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._signalling = threading.Lock()
        # Moment at which it was stopped, None while it runs, and seconds that it has stood in all.
        self._stopped: float | None = None
        self._stood = 0.0
        self._gone = False

    @property
    def clock(self) -> float:
        """Seconds by a clock that stands while the group is stopped."""
        with self._signalling:
            return (time.monotonic() if self._stopped is None else self._stopped) - self._stood

    def pause(self, *, wait: bool = True) -> None:
        """Stop it; returns when its leader stands, at once without `wait`. A dead one stays dead."""
        with self._signalling:
            if self._signal(signal.SIGSTOP) and self._stopped is None:
                self._stopped = time.monotonic()
        if wait:
            patience = time.monotonic() + _STAND_SECONDS
            while not process_table.is_stopped(self.leader) and time.monotonic() < patience:
                time.sleep(0)

    def resume(self) -> None:
        """Let it go on."""
        with self._signalling:
            if self._stopped is not None:
                self._stood += time.monotonic() - self._stopped
                self._stopped = None
            self._signal(signal.SIGCONT)

    def resume_forked(self) -> None:
        """Let go on what did not hear that it may: a process that was being forked meanwhile.

        Linux hands a group's SIGSTOP on to it, and forgets the SIGCONT behind that (`prepare_signal` in kernel/signal.c
        drops one that nobody handles, before forks under way are told).
        """
        with self._signalling:
            if self._stood and self._stopped is None:
                self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill all of it."""
        self._signal(signal.SIGKILL)

    def forget(self) -> None:
        """Signal it no more: its leader was waited for, and the number may be another's by now."""
        self._gone = True

    def _signal(self, number: signal.Signals) -> bool:
        """Whether there was a group to signal."""
        if self._gone:
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, number)
            return True
        return False
