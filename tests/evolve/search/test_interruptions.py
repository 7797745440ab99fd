"""A search that is interrupted or whose judge fails, and its events while several kernels are judged at once."""

import threading
import time

import pytest

from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evolve.search import search as search_module
from kbevolve.evolve.search.events import Event
from tests.evolve.doubles import KnownEvaluator
from tests.evolve.search.test_lookahead import STARTS, Slow, chosen, make


class Broken(Slow):
    """Its device fails at the third kernel, while it judges others."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        found = super().evaluate(problem, kernel)
        if self.asked.total() >= 5:
            raise EvaluatorError("no device any more; plug it in")
        time.sleep(0.2)
        return found


def test_an_infrastructure_failure_ends_the_run_and_keeps_finished_work() -> None:
    archive, evaluator = Archive(":memory:"), Broken(milliseconds=0)
    started = time.monotonic()
    with pytest.raises(EvaluatorError, match="no device any more"):
        make(archive, chosen(3), "offline", evaluator, width=6).run()
    assert time.monotonic() - started < 15
    run = archive.runs.get()
    assert evaluator.at_once == 0
    assert 2 <= len(archive.runs.evaluations(run.id)) < evaluator.asked.total()


class Endless(KnownEvaluator):
    """Answers late, except for the starting kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        if kernel not in STARTS:
            self.released.wait(60)
        return super().evaluate(problem, kernel)


def test_an_interruption_does_not_wait_for_slow_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "INTERRUPTED_SECONDS", 0.1)
    evaluator = Endless()

    def interrupt(event: Event) -> None:
        if len(event.judging) == 3:
            raise KeyboardInterrupt

    started = time.monotonic()
    archive = Archive(":memory:")
    with pytest.raises(KeyboardInterrupt):
        make(archive, chosen(3), "offline", evaluator, width=3, observer=interrupt).run()
    assert time.monotonic() - started < 15
    evaluator.released.set()
    time.sleep(0.1)
    assert len(archive.runs.evaluations(archive.runs.get().id)) == len(STARTS), "an abandoned child was written"


def test_events_count_the_work_in_flight() -> None:
    events: list[Event] = []
    archive = Archive(":memory:")
    make(archive, chosen(3), "model", Slow(milliseconds=30), width=4, observer=events.append).run()
    assert max(len(event.judging) for event in events) == 4
    assert max(event.waiting for event in events) > 0
    assert max(event.asked for event in events) > 1
    done = [event.birth.id for event in events if event.birth and event.done]
    assert done == [birth.id for birth in archive.runs.births(archive.runs.get().id)]
    assert [event.generation for event in events] == sorted(event.generation for event in events)
    assert (events[-1].judging, events[-1].waiting, events[-1].asked) == ((), 0, 0)
