import threading
from threading import Event

import pytest

from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.rate_limit import Pace, pace_of


class Clock:
    """A clock that only moves when somebody waits; it writes down how long that was."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def test_requests_are_spread_over_the_minute() -> None:
    clock = Clock()
    pace, begun = Pace(per_minute=20, clock=clock), []
    for _ in range(5):
        with pace.turn(Event(), clock.wait):
            begun.append(clock.now - 1000.0)
            clock.now += 1.0  # the request itself counts, too
    assert begun == [0.0, 3.0, 6.0, 9.0, 12.0]
    assert clock.waits == [2.0] * 4


def test_time_that_was_not_used_is_not_saved_up() -> None:
    clock = Clock()
    pace = Pace(per_minute=60, clock=clock)
    for _ in range(2):
        clock.now += 100.0
        with pace.turn(Event(), clock.wait):
            pass
    with pace.turn(Event(), clock.wait):
        pass
    assert clock.waits == [1.0]


def test_turns_taken_at_once_are_all_different() -> None:
    clock = Clock()
    pace, waits = Pace(per_minute=60, clock=clock), []
    for _ in range(3):
        with pace.turn(Event(), waits.append):
            pass
    assert waits == [1.0, 2.0]


def test_without_limits_nobody_waits() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    with pace.turn(Event(), clock.wait), pace.turn(Event(), clock.wait):
        pass
    assert clock.waits == []


def test_no_more_are_under_way_than_asked_for() -> None:
    pace = Pace(at_once=2)
    inside, most, lock, done = 0, 0, threading.Lock(), threading.Event()

    def ask() -> None:
        nonlocal inside, most
        with pace.turn(Event()):
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


def test_a_request_that_fails_gives_its_place_back() -> None:
    pace = Pace(at_once=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"), pace.turn(Event()):
            raise ValueError("no answer")


def test_who_waits_for_a_place_is_let_go_when_it_is_over() -> None:
    pace, over, left = Pace(at_once=1), Event(), Event()

    def ask() -> None:
        with pace.turn(over):
            left.set()

    with pace.turn(Event()):
        threading.Thread(target=ask).start()
        assert not left.wait(0.05)
        over.set()
        assert left.wait(2)
    with pace.turn(Event()):  # who had no place has given none back
        assert not pace._take_place(over)


def test_who_waits_for_the_minute_is_let_go_when_it_is_over() -> None:
    pace, over = Pace(per_minute=0.001), Event()
    over.set()
    for _ in range(2):
        with pace.turn(over):
            pass


def test_the_settings_say_how_fast() -> None:
    assert pace_of(LLMSettings(requests_per_minute=30))._apart == 2.0
    assert pace_of(LLMSettings())._apart == 0.0
    with pace_of(LLMSettings(parallel=1)).turn(Event()):
        pass
