"""Threads beside the loop, for slow work. The loop's own thread handles every result.

So only the loop decides and writes, while models and devices may answer in any order.
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

#: Generation, island, slot. The smallest is carried out first: the loop waits for the oldest generation.
Urgency = tuple[int, int, int]


class _Task(NamedTuple):
    """Work that waits for a thread. The number decides between equal urgencies, so functions are never compared."""

    urgency: tuple[int, ...]
    number: int
    work: Callable[[], Any]
    then: Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """A task that has ended: how to handle its result, or its error."""

    then: Callable[[], None]
    error: BaseException | None = None


class Executor:
    """Named pools of threads with one queue of finished work.

    Threads start on demand. They are daemons, so abandoned work does not delay the end of the process. `pools` maps
    the name of each pool to its largest number of threads.
    """

    def __init__(self, pools: Mapping[str, int]) -> None:
        self._sizes = dict(pools)
        self._waiting: dict[str, queue.PriorityQueue[_Task]] = {name: queue.PriorityQueue() for name in pools}
        self._threads: dict[str, list[threading.Thread]] = {name: [] for name in pools}
        self._finished: queue.SimpleQueue[_Finished] = queue.SimpleQueue()
        self._numbers = count()
        self._pending = 0
        #: The newest work that waits for an answer from outside; what depends on it cannot finish here.
        self._unanswered: Unanswered | None = None
        self._stopped = False

    def size(self, pool: str) -> int:
        """The largest number of threads of a pool."""
        return self._sizes[pool]

    def submit(self, pool: str, urgency: Urgency, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Run `work` in a pool; `step` calls `then` with its result. Ignored after `stop`."""
        if self._stopped:
            return
        self._pending += 1
        self._waiting[pool].put(_Task(urgency, next(self._numbers), work, then))
        threads = self._threads[pool]
        # Counts the tasks of all pools: one thread too many does no harm, one too few would.
        if len(threads) < min(self._sizes[pool], self._pending):
            thread = threading.Thread(
                target=_work, args=(self._waiting[pool], self._finished), name=f"{pool}-{len(threads)}", daemon=True
            )
            threads.append(thread)
            thread.start()

    def step(self) -> None:
        """Wait for one result and handle it.

        Work that raises `Unanswered` blocks only what depends on it: all other work is finished first.

        Raises:
            Unanswered: no other work is left.
            BaseException: the error of the work.
        """
        if not self._pending and self._unanswered is not None:
            raise self._unanswered
        finished = self._finished.get()
        self._pending -= 1
        if isinstance(finished.error, Unanswered):
            self._unanswered = finished.error
        elif finished.error is not None:
            raise finished.error
        else:
            finished.then()

    def finish(self) -> None:
        """Wait for all work and handle its results; work that raises `Unanswered` is left."""
        while self._pending:
            self.step()

    def stop(self, *, seconds: float = 0.0) -> None:
        """Drop waiting work; handle what is finished, and what finishes within so many seconds."""
        if self._stopped:
            return
        self._stopped = True
        for waiting in self._waiting.values():
            with contextlib.suppress(queue.Empty):
                while waiting.get_nowait():
                    self._pending -= 1
        deadline = monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while self._pending:
                finished = self._finished.get(timeout=max(deadline - monotonic(), 0.0))
                self._pending -= 1
                # The caller is already raising the first error; a second one would hide it.
                with contextlib.suppress(Exception):
                    if finished.error is None:
                        finished.then()
        for pool, threads in self._threads.items():
            for _ in threads:
                self._waiting[pool].put(_Task((), next(self._numbers), _end_thread, lambda _: None))


def _work(waiting: "queue.PriorityQueue[_Task]", finished: "queue.SimpleQueue[_Finished]") -> None:
    while (task := waiting.get()).work is not _end_thread:
        try:
            result = task.work()
        except BaseException as error:  # the loop raises it, whatever it is
            finished.put(_Finished(then=partial(task.then, None), error=error))
        else:
            finished.put(_Finished(then=partial(task.then, result)))


def _end_thread() -> None:
    """The task that ends a thread; `_work` compares its identity."""
