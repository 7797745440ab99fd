"""The threads beside the loop: urgent work first, errors are raised in the loop, stopping keeps finished work."""

import threading
import time

import pytest

from kbevolve.configs.errors import Unanswered
from kbevolve.evolve.search import executor as executor_module
from kbevolve.evolve.search.executor import Executor
from tests.waiting import until


def test_what_is_urgent_comes_first_and_results_come_to_the_caller() -> None:
    executor, order, gate, begun = Executor({"work": 1}), [], threading.Event(), threading.Event()
    executor.submit(
        "work",
        (9, 0, 0),
        lambda: begun.set() or gate.wait(),
        lambda _: order.append(("gate", threading.current_thread())),
    )
    assert begun.wait(20)
    for generation, island in ((2, 1), (1, 3), (2, 0), (1, 3)):
        executor.submit("work", (generation, island, 0), lambda at=(generation, island): at, order.append)
    gate.set()
    for _ in range(5):
        executor.step()
    assert order == [("gate", threading.main_thread()), (1, 3), (1, 3), (2, 0), (2, 1)]
    executor.stop()


def test_a_team_has_so_many_threads_and_no_more() -> None:
    executor, together, most = Executor({"work": 3}), threading.Semaphore(0), []
    running: set[int] = set()

    def work(number: int) -> None:
        running.add(number)
        most.append(len(running))
        together.acquire(timeout=5)
        running.discard(number)

    for number in range(8):
        executor.submit("work", (0, number, 0), lambda number=number: work(number), lambda _: None)
    until(lambda: running == {0, 1, 2})
    for _ in range(8):
        together.release()
        executor.step()
    assert max(most) == 3
    executor.stop()


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_an_error_of_any_kind_is_raised_in_the_loop(error: BaseException) -> None:
    def fail() -> None:
        raise error

    executor = Executor({"work": 1})
    executor.submit("work", (0, 0, 0), fail, lambda _: None)
    with pytest.raises(type(error)):
        executor.step()
    executor.stop()


def test_stopping_keeps_what_is_finished_in_time_and_gives_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, kept, begun = Executor({"work": 2}), [], []
    emptied, never = threading.Event(), threading.Event()
    # `stop` looks at the clock as soon as no work waits any more.
    monkeypatch.setattr(executor_module, "monotonic", lambda: emptied.set() or time.monotonic())
    executor.submit("work", (0, 0, 0), lambda: begun.append(0) or (emptied.wait(20) and "in time"), kept.append)
    until(lambda: begun == [0])
    executor.submit("work", (0, 1, 0), lambda: begun.append(1) or never.wait(30), kept.append)
    executor.submit("work", (0, 2, 0), lambda: kept.append("begun after the stop"), kept.append)
    until(lambda: begun == [0, 1])
    started = time.monotonic()
    executor.stop(seconds=1.0)
    assert kept == ["in time"]
    assert time.monotonic() - started < 10
    executor.submit("work", (0, 3, 0), lambda: "late", kept.append)
    never.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("work-")])
    assert kept == ["in time"]


def test_work_that_waits_for_an_answer_blocks_no_other_work() -> None:
    executor, done = Executor({"work": 1}), []

    def wait(name: str) -> None:
        raise Unanswered(name)

    executor.submit("work", (0, 0, 0), lambda: wait("first"), done.append)
    executor.submit("work", (1, 0, 0), lambda: "work", done.append)
    executor.submit("work", (2, 0, 0), lambda: wait("last"), done.append)
    for _ in range(3):
        executor.step()
    assert done == ["work"]
    for _ in range(2):
        with pytest.raises(Unanswered, match="last"):
            executor.step()
    executor.submit("work", (3, 0, 0), lambda: "more", done.append)
    executor.step()
    assert done == ["work", "more"]
    executor.stop()
