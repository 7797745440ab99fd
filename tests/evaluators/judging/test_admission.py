"""Kernels of one problem are heard side by side; another problem, and who must be alone, wait."""

import threading
from contextlib import AbstractContextManager
from typing import Any

from kbevolve.evaluators.judging.admission import Docket, Turn

SOON, AT_LAST = 0.05, 20.0


class Visitor:
    """A thread that is heard until it is told to go."""

    def __init__(self, hearing: AbstractContextManager[Any]) -> None:
        self.heard = threading.Event()
        self._out = threading.Event()
        self.turn: Turn | None = None
        self._hearing = hearing
        self._thread = threading.Thread(target=self._go)
        self._thread.start()

    def _go(self) -> None:
        with self._hearing as self.turn:
            self.heard.set()
            assert self._out.wait(AT_LAST)

    def is_heard(self) -> bool:
        return self.heard.wait(AT_LAST)

    def waits(self) -> bool:
        return not self.heard.wait(SOON)

    def go(self) -> None:
        self._out.set()
        self._thread.join(AT_LAST)
        assert not self._thread.is_alive()


def test_one_problem_at_a_time() -> None:
    docket = Docket()
    first, second = Visitor(docket.several("a")), Visitor(docket.several("a"))
    assert first.is_heard()
    assert second.is_heard()
    other = Visitor(docket.several("b"))
    first.go()
    assert other.waits()
    second.go()
    assert other.is_heard()
    back = Visitor(docket.several("a"))
    assert back.waits()
    other.go()
    assert back.is_heard()
    back.go()


def test_company_is_noticed_by_both() -> None:
    docket = Docket()
    first = Visitor(docket.several("a"))
    assert first.is_heard()
    assert not docket.crowded
    second = Visitor(docket.several("a"))
    assert second.is_heard()
    assert docket.crowded
    second.go()
    third = Visitor(docket.several("a"))
    assert third.is_heard()
    first.go()
    third.go()
    lonely = Visitor(docket.several("a"))
    assert lonely.is_heard()
    lonely.go()
    turns = [visitor.turn for visitor in (first, second, third, lonely)]
    assert [turn.crowded for turn in turns if turn] == [True, True, True, False]


def test_alone_is_alone_and_comes_first() -> None:
    docket = Docket()
    first = Visitor(docket.several("a"))
    assert first.is_heard()
    alone = Visitor(docket.alone("a"))
    late = Visitor(docket.several("a"))
    assert alone.waits()
    assert late.waits()
    first.go()
    assert alone.is_heard()
    assert late.waits()
    second_alone = Visitor(docket.alone("b"))
    assert second_alone.waits()
    alone.go()
    assert second_alone.is_heard()
    second_alone.go()
    assert late.is_heard()
    late.go()
