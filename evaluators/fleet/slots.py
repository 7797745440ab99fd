"""The slots of a fleet: each holds one judge, and replaces it when it dies.

A new judge is started in the background. A slot that failed twice in a row is quarantined: it gets no more requests.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.evaluators.fleet.judge_host import JudgeDied, JudgeInfo, RemoteJudge

#: Failures in a row, without a success between, after which a slot is quarantined: one may be bad luck.
_MOST_FAILURES = 2
#: Seconds that a fleet without any judge waits for the first one to return: a host that reboots needs minutes.
_PATIENCE_SECONDS = 600.0

#: Starts a judge and waits until it is ready. Its argument says whether the start was given up. It raises
#: EvaluatorError or JudgeDied when no judge can be started.
StartJudge = Callable[[Callable[[], bool]], RemoteJudge]


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One judge at a time, and how it does."""

    #: For messages, e.g. "cuda:1".
    name: str
    start: StartJudge
    #: None while one is started, and in quarantine.
    judge: RemoteJudge | None = None
    under_way: int = 0
    #: Whether the request under way must stay alone.
    alone: bool = False
    #: Failures since the last success, and the reason for the quarantine; "" when there is none.
    failures: int = 0
    quarantine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A slot and its judge, for one request."""

    slot: Slot
    judge: RemoteJudge


class Slots:
    """All slots of a fleet; safe for several threads."""

    def __init__(self, slots: Sequence[Slot], check: Callable[[JudgeInfo], None]) -> None:
        """Start a judge in every slot, all at once; EvaluatorError when one cannot be started.

        `check` raises EvaluatorError about a judge that does not fit the others.
        """
        self._check = check
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self.slots = tuple(slots)
        self._closed = False
        self._empty_since: float | None = None
        self._starting = ThreadPoolExecutor(max_workers=len(slots), thread_name_prefix="kbevolve-start")
        started = [self._starting.submit(self._start, slot) for slot in slots]
        try:
            for slot, future in zip(slots, started, strict=True):
                try:
                    slot.judge = future.result()
                except (KBEvolveError, JudgeDied) as error:
                    raise EvaluatorError(f"no judge on {slot.name}: {error}") from None
            for judge in self.judges:
                check(judge.info)
        except BaseException:
            self._closed = True
            for future in started:
                with contextlib.suppress(Exception):  # the first failure is raised already
                    future.result().close()
            self._starting.shutdown()
            raise

    @property
    def judges(self) -> list[RemoteJudge]:
        """The judges that are ready now."""
        return [slot.judge for slot in self.slots if slot.judge is not None]

    def acquire(self, *, alone: bool = False, avoid: Collection[Slot] = ()) -> Lease:
        """The judge with the fewest requests under way; waits in a queue while all are full.

        Args:
            alone: a judge with no other request, which gets no other one meanwhile; at the head of the queue.
            avoid: slots that are used only while no other has a judge.

        Raises:
            EvaluatorError: no slot is left, no judge returned in time, or the fleet was closed.
        """
        waiter = object()
        with self._changed:
            (self._queue.appendleft if alone else self._queue.append)(waiter)
            try:
                while (lease := self._lease_for(waiter, alone, avoid)) is None:
                    self._changed.wait(self._seconds_left())
            finally:
                self._queue.remove(waiter)
                self._changed.notify_all()
            lease.slot.under_way += 1
            lease.slot.alone = alone
            return lease

    def release(self, lease: Lease, *, worked: bool = False, failure: str = "") -> None:
        """A request is done. `worked` resets the count of failures, `failure` (one line) increases it."""
        slot, over = lease.slot, False
        with self._changed:
            if slot.judge is not lease.judge:
                return  # it died meanwhile and was replaced
            slot.under_way -= 1
            slot.alone = False
            if worked:
                slot.failures = 0
            if failure:
                self._count_failure(slot, failure)
                if over := bool(slot.quarantine):
                    slot.judge, slot.under_way, slot.alone = None, 0, False
            self._changed.notify_all()
        if over:
            lease.judge.close()

    def report_death(self, lease: Lease, failure: str, *, counts: bool) -> None:
        """A judge died; the first report starts another one. `counts`: the death is a failure of the slot."""
        slot = lease.slot
        with self._changed:
            if slot.judge is lease.judge:
                slot.judge, slot.under_way, slot.alone = None, 0, False
                if counts:
                    self._count_failure(slot, failure)
                if not slot.quarantine and not self._closed:
                    self._starting.submit(self._start_again, slot)
                self._changed.notify_all()
        lease.judge.close()  # a broken one may still live

    def forgive(self, slot: Slot) -> None:
        """A kernel caused a failure of this slot: it does not count, and a quarantine because of it ends."""
        with self._changed:
            slot.failures = max(0, slot.failures - 1)
            if slot.quarantine and slot.failures < _MOST_FAILURES and not self._closed:
                slot.quarantine = ""
                self._starting.submit(self._start_again, slot)

    def close(self) -> None:
        """End all judges; threads that wait for one get an EvaluatorError. May be called twice."""
        with self._changed:
            self._closed = True
            judges = self.judges
            self._changed.notify_all()
        with ThreadPoolExecutor(max_workers=len(self.slots), thread_name_prefix="kbevolve-close") as closing:
            list(closing.map(lambda judge: judge.close(), judges))
        self._starting.shutdown()

    # ---- with the lock held ----------------------------------------------------------------------------------------

    def _lease_for(self, waiter: object, alone: bool, avoid: Collection[Slot]) -> Lease | None:
        if self._closed:
            raise EvaluatorError("the judges were closed before this kernel was evaluated; run `kbevolve resume`")
        if all(slot.quarantine for slot in self.slots):
            raise EvaluatorError(f"no device is left: {self._complaints()}; see `kbevolve doctor`, then resume the run")
        if self._seconds_left() == 0:
            raise EvaluatorError(
                f"no judge returned within {_PATIENCE_SECONDS:.0f} s: {self._complaints() or 'none could be placed'}; "
                "check that a device is free, then resume the run"
            )
        if self._queue[0] is not waiter:
            return None
        ready = [(slot, slot.judge) for slot in self.slots if slot.judge is not None]
        ready = [(slot, judge) for slot, judge in ready if slot not in avoid] or ready
        free = [
            Lease(slot=slot, judge=judge)
            for slot, judge in ready
            if not slot.alone and slot.under_way < (1 if alone else judge.info.width)
        ]
        return min(free, key=lambda lease: lease.slot.under_way, default=None)

    def _seconds_left(self) -> float | None:
        """Seconds until a fleet without any judge gives up; None while it has a judge."""
        if self.judges:
            self._empty_since = None
            return None
        now = time.monotonic()
        self._empty_since = self._empty_since or now
        return max(0.0, self._empty_since + _PATIENCE_SECONDS - now)

    def _count_failure(self, slot: Slot, failure: str) -> None:
        slot.failures += 1
        if slot.failures >= _MOST_FAILURES:
            slot.quarantine = failure

    def _complaints(self) -> str:
        return "; ".join(f"{slot.name}: {slot.quarantine}" for slot in self.slots if slot.quarantine)

    # ---- in the background -----------------------------------------------------------------------------------------

    def _start(self, slot: Slot) -> RemoteJudge:
        return slot.start(lambda: self._closed)

    def _start_again(self, slot: Slot) -> None:
        while not self._closed and not slot.quarantine:
            judge = None
            try:
                judge = self._start(slot)
                self._check(judge.info)
            except Exception as error:  # in this thread, only the slot can report it
                if judge is not None:
                    judge.close()
                with self._changed:
                    self._count_failure(slot, " ".join(str(error).split()) or type(error).__name__)
                    self._changed.notify_all()
                continue
            with self._changed:
                wanted = not self._closed
                if wanted:
                    slot.judge = judge
                self._changed.notify_all()
            if not wanted:
                judge.close()
            return
