"""Kernels of one problem are admitted side by side; another problem, and a thread that wants to be alone, wait."""

import threading
from contextlib import AbstractContextManager
from typing import Any

from kbevolve.evaluators.judging.admission import Admission, AdmissionSlot

SOON, AT_LAST = 0.05, 20.0


class Visitor:
    """A thread that holds an admission until `leave`."""

    def __init__(self, admitted: AbstractContextManager[Any]) -> None:
        self._inside, self._out = threading.Event(), threading.Event()
        self.slot: AdmissionSlot | None = None
        self._admitted = admitted
        self._thread = threading.Thread(target=self._visit)
        self._thread.start()

    def _visit(self) -> None:
        with self._admitted as self.slot:
            self._inside.set()
            assert self._out.wait(AT_LAST)

    def is_inside(self) -> bool:
        return self._inside.wait(AT_LAST)

    def waits(self) -> bool:
        return not self._inside.wait(SOON)

    def leave(self) -> None:
        self._out.set()
        self._thread.join(AT_LAST)
        assert not self._thread.is_alive()


def test_one_problem_at_a_time() -> None:
    admission = Admission()
    first, second = Visitor(admission.shared("a")), Visitor(admission.shared("a"))
    assert first.is_inside()
    assert second.is_inside()
    other = Visitor(admission.shared("b"))
    first.leave()
    assert other.waits()
    second.leave()
    assert other.is_inside()
    back = Visitor(admission.shared("a"))
    assert back.waits()
    other.leave()
    assert back.is_inside()
    back.leave()


def test_both_slots_note_that_they_were_shared() -> None:
    admission = Admission()
    first = Visitor(admission.shared("a"))
    assert first.is_inside()
    assert not admission.is_shared
    second = Visitor(admission.shared("a"))
    assert second.is_inside()
    assert admission.is_shared
    second.leave()
    third = Visitor(admission.shared("a"))
    assert third.is_inside()
    first.leave()
    third.leave()
    last = Visitor(admission.shared("a"))
    assert last.is_inside()
    last.leave()
    slots = [visitor.slot for visitor in (first, second, third, last)]
    assert [slot.was_shared for slot in slots if slot] == [True, True, True, False]


def test_an_exclusive_visitor_is_alone_and_enters_first() -> None:
    admission = Admission()
    first = Visitor(admission.shared("a"))
    assert first.is_inside()
    alone = Visitor(admission.exclusive("a"))
    assert alone.waits()
    late = Visitor(admission.shared("a"))
    assert late.waits()
    first.leave()
    assert alone.is_inside()
    assert late.waits()
    second_alone = Visitor(admission.exclusive("b"))
    assert second_alone.waits()
    alone.leave()
    assert second_alone.is_inside()
    second_alone.leave()
    assert late.is_inside()
    late.leave()
