"""What differs between processes is no kernel's doing: who seems to hide time is timed in others."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.evaluators import hearing
from kbevolve.evaluators.hearing import UNTOLD, hear_until_sure


def heard(monkeypatch: pytest.MonkeyPatch, *tags: tuple[str, ...]) -> tuple[Any, int]:
    """What is settled when processes say these in turn, and how many were asked."""
    said: Iterator[Any] = iter([SimpleNamespace(number=number, tags=one) for number, one in enumerate(tags)])
    asked: list[object] = []

    def hear(*_: object) -> Any:
        asked.append(None)
        return next(said)

    monkeypatch.setattr(hearing, "hear", hear)
    none: Any = None
    return hear_until_sure(none, none, none, none), len(asked)


def test_one_process_is_enough_where_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = heard(monkeypatch, ("streams",))
    assert (found.number, asked) == (0, 1)


def test_a_process_that_was_slow_to_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = heard(monkeypatch, (UNTOLD,), ("streams",))
    assert (found.number, asked) == (1, 2)


def test_a_kernel_that_hides_time_hides_it_in_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = heard(monkeypatch, (UNTOLD,), ("streams", UNTOLD), (UNTOLD,))
    assert (found.number, asked) == (2, 3)
