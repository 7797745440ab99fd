"""The posts of a fleet: a place for one judge each. Who is there, who is asked next, who is not asked any more.

A post whose judge died gets another one, by itself and beside the work of the others. One that failed twice in a row
is quarantined: nothing is sent there again.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.evaluators.fleet.judge_host import FarJudge, Introduction, JudgeDied

#: Failures in a row, without a success between, after which a post is quarantined: one may be bad luck.
_MOST_FAILURES = 2
#: Seconds that a fleet waits for its first judge to come back while it has none: a host that reboots needs minutes.
_PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A place where a judge can be hired, as often as one dies."""

    #: For messages, e.g. "cuda:1".
    name: str
    #: Starts a judge and waits until it is ready; its argument says whether it is wanted any more. It raises
    #: EvaluatorError or JudgeDied when none can be had.
    hire: Callable[[Callable[[], bool]], FarJudge]


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One place and how it does."""

    opening: Opening
    #: None while one is being hired, and for ever in quarantine.
    judge: FarJudge | None = None
    under_way: int = 0
    #: Whether what is under way must stay alone.
    alone: bool = False
    #: Failures since the last success, and why it was quarantined; "" when it was not.
    failures: int = 0
    quarantine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A judge's time for one order."""

    post: Post
    judge: FarJudge


@dataclass(slots=True, kw_only=True, eq=False)
class _Ticket:
    alone: bool
    avoid: Collection[Post]


class Posts:
    """All posts of a fleet; safe for several threads."""

    def __init__(self, openings: Sequence[Opening], admit: Callable[[Introduction], None]) -> None:
        """Hire a judge for every post, all at once.

        Args:
            openings: at least one.
            admit: raises EvaluatorError about a judge that does not fit the others.

        Raises:
            EvaluatorError: one of them cannot be had: what was asked for is told to be missing before work begins.
        """
        self._admit = admit
        self._changed = threading.Condition()
        self._queue: deque[_Ticket] = deque()
        self._posts = [Post(opening=opening) for opening in openings]
        self._closed = False
        self._lonely_since: float | None = None
        self._hiring = ThreadPoolExecutor(max_workers=len(openings), thread_name_prefix="kbevolve-hire")
        try:
            hired = [self._hiring.submit(self._hire, post) for post in self._posts]
            for post, future in zip(self._posts, hired, strict=True):
                try:
                    post.judge = future.result()
                except (KBEvolveError, JudgeDied) as error:
                    raise EvaluatorError(f"no judge on {post.opening.name}: {error}") from None
            for judge in self.judges:
                admit(judge.introduction)
        except BaseException:
            self._closed = True
            for future in hired:
                with contextlib.suppress(Exception):  # the first one is on its way to the user
                    future.result().close()
            self._hiring.shutdown()
            raise

    @property
    def judges(self) -> list[FarJudge]:
        """Those that are there now."""
        return [post.judge for post in self._posts if post.judge is not None]

    def take(self, *, alone: bool = False, avoid: Collection[Post] = ()) -> Seat:
        """The judge with the fewest kernels under way; waits in line while all are full.

        Args:
            alone: a judge that has nothing else under way, and gets nothing else meanwhile; at the head of the line.
            avoid: posts that are taken only while no other has a judge.

        Raises:
            EvaluatorError: no post is left, or no judge came back in time, or the fleet was closed.
        """
        ticket = _Ticket(alone=alone, avoid=avoid)
        with self._changed:
            (self._queue.appendleft if alone else self._queue.append)(ticket)
            try:
                while (seat := self._seat_for(ticket)) is None:
                    self._changed.wait(self._seconds_left())
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
            seat.post.under_way += 1
            seat.post.alone = alone
            return seat

    def give_back(self, seat: Seat, *, worked: bool = False, failure: str = "") -> None:
        """An order is over; `worked` ends a row of failures, a `failure` lengthens it."""
        post = seat.post
        with self._changed:
            if post.judge is not seat.judge:
                return  # it died meanwhile, and the post began anew
            post.under_way -= 1
            post.alone = False
            if worked:
                post.failures = 0
            if failure:
                self._fail(post, failure)
                if post.quarantine:
                    post.judge = None
            self._changed.notify_all()
        if post.quarantine:
            seat.judge.close()

    def bury(self, seat: Seat, failure: str, *, counts: bool) -> None:
        """A judge died. The first to say so has another one hired.

        Args:
            seat: where it was.
            failure: how it died, one line.
            counts: whether that speaks against the post.
        """
        post = seat.post
        with self._changed:
            if post.judge is seat.judge:
                post.judge, post.under_way, post.alone = None, 0, False
                if counts:
                    self._fail(post, failure)
                if not post.quarantine and not self._closed:
                    self._hiring.submit(self._hire_again, post)
                self._changed.notify_all()
        seat.judge.close()  # a broken one may still live

    def forgive(self, post: Post) -> None:
        """A failure of this post was a kernel's: it does not count, and a quarantine that rested on it is over."""
        with self._changed:
            post.failures = max(0, post.failures - 1)
            if post.quarantine and post.failures < _MOST_FAILURES and not self._closed:
                post.quarantine = ""
                self._hiring.submit(self._hire_again, post)

    def close(self) -> None:
        """End all judges; whoever waits for one hears it. May be called twice."""
        with self._changed:
            self._closed = True
            judges = self.judges
            self._changed.notify_all()
        with ThreadPoolExecutor(max_workers=len(self._posts), thread_name_prefix="kbevolve-dismiss") as dismissing:
            list(dismissing.map(lambda judge: judge.close(), judges))
        self._hiring.shutdown()

    # ---- within the lock -------------------------------------------------------------------------------------------

    def _seat_for(self, ticket: _Ticket) -> Seat | None:
        if self._closed:
            raise EvaluatorError("the judges were sent home before this kernel was judged; `kbevolve resume` goes on")
        if all(post.quarantine for post in self._posts):
            raise EvaluatorError(f"no device is left: {self._complaints()}; see `kbevolve doctor`, then resume the run")
        if self._seconds_left() == 0:
            raise EvaluatorError(
                f"no judge came back within {_PATIENCE_SECONDS:.0f} s: {self._complaints() or 'none could be placed'}; "
                "see that a device is free, then resume the run"
            )
        if self._queue[0] is not ticket:
            return None
        there = [(post, post.judge) for post in self._posts if post.judge is not None]
        there = [(post, judge) for post, judge in there if post not in ticket.avoid] or there
        free = [
            Seat(post=post, judge=judge)
            for post, judge in there
            if not post.alone and post.under_way < (1 if ticket.alone else judge.introduction.width)
        ]
        return min(free, key=lambda seat: seat.post.under_way, default=None)

    def _seconds_left(self) -> float | None:
        """Seconds of patience with a fleet that has no judge at all; None while it has one."""
        if self.judges:
            self._lonely_since = None
            return None
        now = time.monotonic()
        self._lonely_since = self._lonely_since or now
        return max(0.0, self._lonely_since + _PATIENCE_SECONDS - now)

    def _fail(self, post: Post, failure: str) -> None:
        post.failures += 1
        if post.failures >= _MOST_FAILURES:
            post.quarantine = failure

    def _complaints(self) -> str:
        return "; ".join(f"{post.opening.name}: {post.quarantine}" for post in self._posts if post.quarantine)

    # ---- beside the work -------------------------------------------------------------------------------------------

    def _hire(self, post: Post) -> FarJudge:
        return post.opening.hire(lambda: self._closed)

    def _hire_again(self, post: Post) -> None:
        while not self._closed and not post.quarantine:
            judge = None
            try:
                judge = self._hire(post)
                self._admit(judge.introduction)
            except Exception as error:  # whatever it is: in this thread nobody else would hear of it
                if judge is not None:
                    judge.close()
                with self._changed:
                    self._fail(post, " ".join(str(error).split()) or type(error).__name__)
                    self._changed.notify_all()
                continue
            with self._changed:
                wanted = not self._closed
                if wanted:
                    post.judge = judge
                self._changed.notify_all()
            if not wanted:
                judge.close()
            return
