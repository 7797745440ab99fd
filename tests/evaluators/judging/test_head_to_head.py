"""A contest with a penalty for unreported time is held again, in other processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.judging import head_to_head
from kbevolve.evaluators.judging.paired_timing import REFERENCE
from kbevolve.evaluators.timing.rounds import TimedBlock


def block(penalty_ms: float = 0.0) -> TimedBlock:
    call = Call(ms=1.0, wall_ms=1.3, asked=0.0, changed_inputs=frozenset(), aliases_input=frozenset(), changes=())
    return TimedBlock(calls=(call,), trip_ms=1.3, processor_ms=1.3, penalty_ms=penalty_ms)


@pytest.mark.parametrize(
    ("penalties", "added", "count"), [((0.0,), 0.0, 1), ((0.5, 0.0), 0.0, 2), ((0.5, 0.6, 0.7), 0.7, 3)]
)
def test_a_penalty_is_final_when_all_processes_show_it(
    monkeypatch: pytest.MonkeyPatch, penalties: tuple[float, ...], added: float, count: int
) -> None:
    left = list(penalties)

    def run_once(*_: object) -> tuple[Any, list[dict[str, TimedBlock]]]:
        found = {"kernel": SimpleNamespace(verdict=Verdict.CORRECT)}
        return found, [{REFERENCE: block(), "kernel": block(left.pop(0))}]

    monkeypatch.setattr(head_to_head, "_run_once", run_once)
    unused: Any = None
    contest = head_to_head.run_contest(unused, [], rounds=1, tie=0.005)
    assert contest.times["kernel"] == ((1.0 + added,),)
    assert len(penalties) - len(left) == count
