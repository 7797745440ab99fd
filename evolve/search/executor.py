"""The threads beside the loop: they carry out what takes long; what came of it is dealt with in the loop's own thread.

So only the loop's thread decides and writes, while answers of models and verdicts of devices may come in any order.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from kbevolve.configs.errors import Unanswered

Result = TypeVar("Result")

#: What should be done first: generation, island, slot. Older generations first, since the run waits for them.
Urgency = tuple[int, int, int]


class _Task(NamedTuple):
    """Work that waits for a thread. Its number decides between equals, so that nothing behind it is compared."""

    urgency: tuple[int, ...]
    number: int
    work: Callable[[], Any]
    then: Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What came of a task: what is to be done with it, or the error that it ended with."""

    then: Callable[[], None]
    error: BaseException | None = None


class Crew:
    """Teams of threads with one tray for all that they finish.

    Threads are started as they are needed. They are daemons: a process that wants to end does not wait for work that
    was given up.

    Args:
        teams: name of each team -> how many threads it has at most.
    """

    def __init__(self, teams: Mapping[str, int]) -> None:
        self._sizes = dict(teams)
        self._waiting: dict[str, queue.PriorityQueue[_Task]] = {name: queue.PriorityQueue() for name in teams}
        self._threads: dict[str, list[threading.Thread]] = {name: [] for name in teams}
        self._tray: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        self._numbers = count()
        self._owed = 0
        #: The newest work that waits for somebody outside; what rests on it will not be finished here.
        self._unanswered: Unanswered | None = None
        self._stopped = False

    def give(self, team: str, urgency: Urgency, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Have a team do some work; `step` will call `then` with what came of it. Ignored once the crew is stopped."""
        if self._stopped:
            return
        self._owed += 1
        self._waiting[team].put(_Task(urgency, next(self._numbers), work, then))
        threads = self._threads[team]
        # Unfinished tasks of all teams: a thread too many does no harm, one too few would.
        if len(threads) < min(self._sizes[team], self._owed):
            thread = threading.Thread(
                target=_serve, args=(self._waiting[team], self._tray), name=f"{team}-{len(threads)}", daemon=True
            )
            threads.append(thread)
            thread.start()

    def step(self) -> None:
        """Wait until something is finished, and deal with it.

        Work that waits for somebody outside holds up nothing but what rests on it: all else is finished first.

        Raises:
            Unanswered: there is nothing else left.
            BaseException: whatever the work ended with.
        """
        if not self._owed and self._unanswered is not None:
            raise self._unanswered
        outcome = self._tray.get()
        self._owed -= 1
        if isinstance(outcome.error, Unanswered):
            self._unanswered = outcome.error
        elif outcome.error is not None:
            raise outcome.error
        else:
            outcome.then()

    def stop(self, *, seconds: float = 0.0) -> None:
        """Give up what waits; deal with what is finished, and with what is still finished within so many seconds."""
        if self._stopped:
            return
        self._stopped = True
        for waiting in self._waiting.values():
            with contextlib.suppress(queue.Empty):
                while waiting.get_nowait():
                    self._owed -= 1
        deadline = monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while self._owed:
                outcome = self._tray.get(timeout=max(deadline - monotonic(), 0.0))
                self._owed -= 1
                # The first error is on its way to the user; another one, here, would hide it.
                with contextlib.suppress(Exception):
                    if outcome.error is None:
                        outcome.then()
        for team, threads in self._threads.items():
            for _ in threads:
                self._waiting[team].put(_Task((), next(self._numbers), _leave, _ignore))


def _serve(waiting: "queue.PriorityQueue[_Task]", tray: "queue.SimpleQueue[_Outcome]") -> None:
    while (task := waiting.get()).work is not _leave:
        try:
            result = task.work()
        except BaseException as error:  # whatever it is, it belongs to the loop
            tray.put(_Outcome(then=partial(task.then, None), error=error))
        else:
            tray.put(_Outcome(then=partial(task.then, result)))


def _leave() -> None:
    """The work that ends a thread; it is told by its identity."""


def _ignore(result: object) -> None:
    """What is done with nothing."""
