import threading
from threading import Event

import pytest

from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.rate_limit import RateLimit


class Clock(Event):
    """A clock that moves only by waiting; it records the waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.now += timeout or 0.0
        return False


def test_requests_start_evenly_spaced() -> None:
    clock = Clock()
    limit, begun = RateLimit(per_minute=20, clock=clock), []
    for _ in range(5):
        with limit.slot(clock):
            begun.append(clock.now - 1000.0)
            clock.now += 1.0  # the request itself counts, too
    assert begun == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert clock.waits == [2.0] * 4


def test_unused_time_is_not_saved_up() -> None:
    clock = Clock()
    limit = RateLimit(per_minute=60, clock=clock)
    for _ in range(2):
        clock.now += 100.0
        with limit.slot(clock):
            pass
    with limit.slot(clock):
        pass
    assert clock.waits == [1.0]


def test_requests_at_the_same_moment_get_different_starts() -> None:
    waiting = Clock()
    limit = RateLimit(per_minute=60, clock=lambda: 1000.0)
    for _ in range(3):
        with limit.slot(waiting):
            pass
    assert waiting.waits == [1.0, 2.0]


def test_without_limits_there_is_no_wait() -> None:
    clock = Clock()
    limit = RateLimit(clock=clock)
    with limit.slot(clock), limit.slot(clock):
        pass
    assert clock.waits == []


def test_no_more_requests_run_than_allowed() -> None:
    limit = RateLimit(at_once=2)
    inside, most, lock, done = 0, 0, threading.Lock(), threading.Event()

    def ask() -> None:
        nonlocal inside, most
        with limit.slot(Event()):
            with lock:
                inside += 1
                most = max(most, inside)
            done.wait(0.02)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (most, inside) == (2, 0)


def test_a_failed_request_frees_its_slot() -> None:
    limit = RateLimit(at_once=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"), limit.slot(Event()):
            raise ValueError("no answer")


def test_cancelling_ends_the_wait_for_a_slot() -> None:
    limit, cancelled, left = RateLimit(at_once=1), Event(), Event()

    def ask() -> None:
        with limit.slot(cancelled):
            left.set()

    with limit.slot(Event()):
        threading.Thread(target=ask).start()
        assert not left.wait(0.05)
        cancelled.set()
        assert left.wait(2)
    with limit.slot(Event()):  # the cancelled request has freed no slot that it did not have
        assert limit._running is not None
        assert not limit._running.acquire(blocking=False)


def test_cancelling_ends_the_wait_for_a_start() -> None:
    limit, cancelled = RateLimit(per_minute=0.001), Event()
    cancelled.set()
    for _ in range(2):
        with limit.slot(cancelled):
            pass


def test_the_settings_give_the_limits() -> None:
    assert RateLimit.of(LLMSettings(requests_per_minute=30))._interval == 2.0
    assert RateLimit.of(LLMSettings())._interval == 0.0
    with RateLimit.of(LLMSettings(parallel=1)).slot(Event()):
        pass
