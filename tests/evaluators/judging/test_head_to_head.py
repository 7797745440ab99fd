"""A contest in which the judge saw untold time is held again, in other processes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.judging import head_to_head
from kbevolve.evaluators.judging.paired_timing import REFERENCE
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.rounds import Block


def block(penalty_ms: float = 0.0) -> Block:
    call = Call(ms=1.0, wall_ms=1.3, asked=0.0, changed_input=False, aliases_input=False, changes=())
    return Block(calls=(call,), trip_ms=1.3, processor_ms=1.3, penalty_ms=penalty_ms)


def held(monkeypatch: pytest.MonkeyPatch, *doubts: float) -> tuple[Contest, int]:
    """The contest that counts when so much is added in one after another, and how many were held."""
    left: Iterator[float] = iter(doubts)
    count: list[object] = []

    def hold(*_: object, **__: object) -> tuple[Any, list[dict[str, Block]]]:
        count.append(None)
        field = SimpleNamespace(seats={REFERENCE: None, "kernel": None}, found={})
        return field, [{REFERENCE: block(), "kernel": block(next(left))}]

    monkeypatch.setattr(head_to_head, "_hold", hold)
    none: Any = None
    return head_to_head.hold_contest(none, [], rounds=1, admit=none, tie=0.005), len(count)


@pytest.mark.parametrize(
    ("doubts", "added", "count"), [((0.0,), 0.0, 1), ((0.5, 0.0), 0.0, 2), ((0.5, 0.6, 0.7), 0.7, 3)]
)
def test_untold_time_stands_when_all_processes_show_it(
    monkeypatch: pytest.MonkeyPatch, doubts: tuple[float, ...], added: float, count: int
) -> None:
    contest, contests_held = held(monkeypatch, *doubts)
    assert contest.times["kernel"] == ((1.0 + added,),)
    assert contests_held == count
