"""Who is heard now: several kernels of one problem side by side, or one alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Turn:
    """One kernel's time before the judge."""

    #: Whether another was heard at the same time, and may have taken memory that this one needed.
    crowded: bool = False


class Docket:
    """Admits those who come, by problem: what belongs to a problem is prepared once, and fills most of a device.

    Whoever comes for the problem that is being heard enters at once; others wait until all of those are through. Who
    must be alone comes before all who come later.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._problem = ""
        self._heard: set[Turn] = set()
        self._alone = False
        self._waiting_alone = 0

    @contextmanager
    def several(self, problem: str) -> Iterator[Turn]:
        """Be heard beside others of the problem with this id."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone and self._is_open_to(problem))
            self._problem = problem
            turn = Turn(crowded=bool(self._heard))
            for other in self._heard:
                other.crowded = True
            self._heard.add(turn)
        try:
            yield turn
        finally:
            with self._changed:
                self._heard.discard(turn)
                self._changed.notify_all()

    @contextmanager
    def alone(self, problem: str) -> Iterator[None]:
        """Be heard with nobody beside."""
        with self._changed:
            self._waiting_alone += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._heard)
                self._alone = True
                self._problem = problem
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    @property
    def crowded(self) -> bool:
        """Whether several are heard now."""
        return len(self._heard) > 1

    def _is_open_to(self, problem: str) -> bool:
        return not self._heard or self._problem == problem
