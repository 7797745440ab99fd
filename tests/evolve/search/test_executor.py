"""The threads beside the loop: what is urgent first, errors come to the loop, stopping keeps what is finished."""

import threading
import time
from collections.abc import Callable

import pytest

from kbevolve.configs.errors import Unanswered
from kbevolve.evolve.search.executor import Crew


def eventually(true: Callable[[], bool]) -> None:
    """Wait for something that other threads bring about."""
    give_up = time.monotonic() + 20
    while not true():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.005)


def test_what_is_urgent_comes_first_and_results_come_to_the_caller() -> None:
    crew, order, gate = Crew({"work": 1}), [], threading.Event()
    crew.give("work", (9, 0, 0), gate.wait, lambda _: order.append(("gate", threading.current_thread())))
    for generation, island in ((2, 1), (1, 3), (2, 0), (1, 3)):
        crew.give("work", (generation, island, 0), lambda at=(generation, island): at, order.append)
    gate.set()
    for _ in range(5):
        crew.step()
    assert order == [("gate", threading.main_thread()), (1, 3), (1, 3), (2, 0), (2, 1)]
    crew.stop()


def test_a_team_has_so_many_threads_and_no_more() -> None:
    crew, together, most = Crew({"work": 3}), threading.Semaphore(0), []
    running: set[int] = set()

    def work(number: int) -> None:
        running.add(number)
        most.append(len(running))
        together.acquire(timeout=5)
        running.discard(number)

    for number in range(8):
        crew.give("work", (0, number, 0), lambda number=number: work(number), lambda _: None)
    eventually(lambda: running == {0, 1, 2})
    for _ in range(8):
        together.release()
        crew.step()
    assert max(most) == 3
    crew.stop()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_of_any_kind_is_raised_in_the_loop(error: BaseException) -> None:
    def fail() -> None:
        raise error

    crew = Crew({"work": 1})
    crew.give("work", (0, 0, 0), fail, lambda _: None)
    with pytest.raises(type(error)):
        crew.step()
    crew.stop()


def test_stopping_keeps_what_is_finished_in_time_and_gives_up_the_rest() -> None:
    crew, kept, begun, never = Crew({"work": 2}), [], [], threading.Event()
    crew.give("work", (0, 0, 0), lambda: begun.append(0) or time.sleep(0.2) or "in time", kept.append)
    eventually(lambda: begun == [0])
    crew.give("work", (0, 1, 0), lambda: begun.append(1) or never.wait(30), kept.append)
    crew.give("work", (0, 2, 0), lambda: kept.append("begun after the stop"), kept.append)
    eventually(lambda: begun == [0, 1])
    started = time.monotonic()
    crew.stop(seconds=1.0)
    assert kept == ["in time"]
    assert time.monotonic() - started < 10
    crew.give("work", (0, 3, 0), lambda: "late", kept.append)
    never.set()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("work-")])
    assert kept == ["in time"]


def test_what_waits_for_somebody_outside_holds_up_nothing_else() -> None:
    crew, done = Crew({"work": 1}), []

    def wait(name: str) -> None:
        raise Unanswered(name)

    crew.give("work", (0, 0, 0), lambda: wait("first"), done.append)
    crew.give("work", (1, 0, 0), lambda: "work", done.append)
    crew.give("work", (2, 0, 0), lambda: wait("last"), done.append)
    for _ in range(3):
        crew.step()
    assert done == ["work"]
    for _ in range(2):
        with pytest.raises(Unanswered, match="last"):
            crew.step()
    crew.give("work", (3, 0, 0), lambda: "more", done.append)
    crew.step()
    assert done == ["work", "more"]
    crew.stop()
