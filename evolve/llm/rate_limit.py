"""How fast requests go out: so many a minute, so many at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Event, Lock
from time import monotonic

from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.connection import GLANCE


class Pace:
    """Gives every request its turn. One for all that share a limit; safe to use from several threads.

    Turns are spread evenly and not given in bursts, because endpoints that state a limit for a minute enforce it for
    parts of one, too.

    Args:
        per_minute: requests that are begun in a minute; None for no limit.
        at_once: requests under way at the same time; None for no limit.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        *,
        per_minute: float | None = None,
        at_once: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._apart = 60.0 / per_minute if per_minute else 0.0
        self._places = BoundedSemaphore(at_once) if at_once else None
        self._clock = clock
        self._next = clock()
        self._lock = Lock()

    @contextmanager
    def turn(self, over: Event, wait: Callable[[float], object] | None = None) -> Iterator[None]:
        """Hold a place for one request, from when it may begin.

        Args:
            over: ends the wait at once; a request that finds it set is not to be sent.
            wait: waits so many seconds; None waits on `over`.
        """
        if not self._take_place(over):
            yield
            return
        try:
            seconds = self._seconds_to_turn()
            if seconds > 0:
                (wait or over.wait)(seconds)
            yield
        finally:
            if self._places is not None:
                self._places.release()

    def _take_place(self, over: Event) -> bool:
        if self._places is None:
            return True
        while not self._places.acquire(timeout=GLANCE):
            if over.is_set():
                return False
        return True

    def _seconds_to_turn(self) -> float:
        """Take the next turn that is free; seconds until it comes."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._apart
            return turn - now


def pace_of(settings: LLMSettings) -> Pace:
    """The pace that the settings ask for."""
    return Pace(per_minute=settings.requests_per_minute, at_once=settings.parallel)
