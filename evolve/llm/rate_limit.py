"""Limits requests: how many start in a minute, and how many run at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Lock
from time import monotonic
from typing import Self

from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.connection import POLL_SECONDS


class RateLimit:
    """A limit that several threads, and several models, may share.

    Starts are spaced evenly, not in bursts: endpoints that state a limit per minute also enforce it for parts of one.

    Args:
        per_minute: requests started in a minute; None for no limit.
        at_once: requests running at the same time; None for no limit.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        per_minute: float | None = None,
        at_once: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._running = BoundedSemaphore(at_once) if at_once else None
        self._clock = clock
        self._next = clock()
        self._lock = Lock()

    @classmethod
    def of(cls, settings: LLMSettings) -> Self:
        """The limit that the settings ask for."""
        return cls(per_minute=settings.requests_per_minute, at_once=settings.parallel)

    @contextmanager
    def slot(self, cancelled: Event) -> Iterator[None]:
        """Wait until one request may start, and count it as running inside the `with` block.

        `cancelled` ends the wait at once; a request that finds it set must not be sent.
        """
        while self._running is not None and not self._running.acquire(timeout=POLL_SECONDS):
            if cancelled.is_set():
                yield
                return
        try:
            if (seconds := self._seconds_to_start()) > 0:
                cancelled.wait(seconds)
            yield
        finally:
            if self._running is not None:
                self._running.release()

    def _seconds_to_start(self) -> float:
        """Reserve the next free start; seconds until then."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next)
            self._next = start + self._interval
            return start - now
