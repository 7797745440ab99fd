"""When a run's time is over. A stop by time lies where the clock puts it, like Ctrl-C, and is resumed like one."""

from collections.abc import Callable
from dataclasses import dataclass

from kbevolve.configs.errors import Unanswered


@dataclass(slots=True, kw_only=True)
class Deadline:
    """Tells whether anything new may begin. Work that has begun ends, and counts."""

    #: Seconds that all sessions together may last; None for no limit.
    limit: float | None
    #: Returns the seconds that they have lasted.
    elapsed: Callable[[], float]
    #: Seconds that are kept for the final, as measured by the contests of this session.
    reserve: float = 0.0

    @property
    def over(self) -> bool:
        """Whether not even the final may begin."""
        return self.limit is not None and self.elapsed() >= self.limit

    @property
    def near(self) -> bool:
        """Whether only the final may begin."""
        return self.limit is not None and self.elapsed() + self.reserve >= self.limit

    def check(self) -> None:
        """Called before something begins.

        Raises:
            Unanswered: it may not; what has begun is finished first (`evolve.search.executor`).
        """
        if self.near:
            raise Unanswered("the time of the run is over")
