"""When a contest ends, and that one with a penalty for unreported time is held again, in other processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.judging import head_to_head
from kbevolve.evaluators.judging.paired_timing import REFERENCE
from kbevolve.evaluators.timing.rounds import TimedBlock


def block(penalty_ms: float = 0.0, *, ms: float = 1.0, calls: int = 1) -> TimedBlock:
    call = Call(ms=ms, wall_ms=1.3, asked=0.0, changed_inputs=frozenset(), aliases_input=frozenset(), changes=())
    return TimedBlock(calls=(call,) * calls, trip_ms=1.3, processor_ms=1.3, penalty_ms=penalty_ms)


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


def rounds_of(*kernel_ms: float, calls: int = 10) -> list[dict[str, TimedBlock]]:
    """A round for each of these times, beside a reference of 1 ms."""
    one = block(calls=calls)
    return [{REFERENCE: one, "one": one, "other": block(ms=ms, calls=calls)} for ms in kernel_ms]


def test_a_contest_ends_when_each_kernel_is_known_well_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(head_to_head.time, "monotonic", lambda: now)
    settings = EvaluationSettings(least_rounds=5, interval=0.0025, timing_seconds=1.0)
    is_enough = head_to_head._enough_for_all(settings, ["one", "other"])
    assert not is_enough(rounds_of(*[0.5] * 4)), "too few rounds"
    assert is_enough(rounds_of(*[0.5] * 5))
    assert not is_enough(rounds_of(*[0.5] * 9, calls=3)), "too few calls, of which each is checked"
    assert is_enough(rounds_of(*[0.5] * 10, calls=3))
    scattered = rounds_of(0.5, 0.52, 0.48, 0.51, 0.49)
    assert not is_enough(scattered)
    now = 3.0 * 3 + 0.1  # three times `timing_seconds` for each of three processes
    assert is_enough(scattered)
    assert not is_enough(scattered[:4])
