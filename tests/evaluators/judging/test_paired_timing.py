"""Which of the reported times the judge believes, and how long a kernel is timed."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging import paired_timing
from kbevolve.evaluators.judging.paired_timing import (
    REFERENCE,
    Round,
    _corrected,
    _is_behind,
    is_clearly_slow,
    log_ratios,
    run_credible_rounds,
    time_beside_reference,
)
from kbevolve.evaluators.timing.clock import ClocksDisagree, Undisturbed
from kbevolve.evaluators.timing.rounds import TimedBlock
from kbevolve.evaluators.timing.statistics import hodges_lehmann
from tests.evaluators.timing.test_clock import calls

UNDISTURBED = Undisturbed(3.0, 0.3)
LEVEL = [0.0] * 3


def block(reported: list[float], trip: float, processor_ms: float | None = None, waited_ms: float = 0.0) -> TimedBlock:
    """Calls whose round trips all take `trip` milliseconds, whatever the worker reports."""
    return TimedBlock(
        calls=tuple(call for ms in reported for call in calls(ms, [trip - ms])),
        trip_ms=trip,
        processor_ms=trip if processor_ms is None else processor_ms,
        waited_ms=waited_ms,
    )


def believed(rounds: list[Round], undisturbed: Undisturbed = UNDISTURBED) -> float:
    """The log speedup after the judge's corrections."""
    context: Any = SimpleNamespace(device=find_device("cpu"), undisturbed=undisturbed)
    return hodges_lehmann(log_ratios(_corrected(context, rounds, ["kernel"]), "kernel"))


def test_a_kernel_that_lies_in_most_calls_of_most_rounds_gains_nothing() -> None:
    lying, honest = block([0.5] * 6 + [3.0] * 4, 3.3), block([3.0] * 10, 3.3)
    rounds: list[Round] = [{REFERENCE: honest, "kernel": one} for one in (lying, lying, honest, lying, lying)]
    assert hodges_lehmann(log_ratios(rounds, "kernel")) > 1
    assert believed(rounds) <= 0


def test_the_times_of_an_honest_kernel_are_not_changed() -> None:
    rounds: list[Round] = [{REFERENCE: block([3.0] * 4, 3.3), "kernel": block([1.5] * 4, 1.8)} for _ in range(5)]
    assert believed(rounds) == pytest.approx(hodges_lehmann(log_ratios(rounds, "kernel")))


def test_on_an_overloaded_machine_a_kernel_gains_at_most_the_processor_time_that_it_saves() -> None:
    """As seen once: the reference is delayed in all of its calls, also in those of its undisturbed time."""
    waiting = block([16.0, 20.0, 16.0], 60.0, processor_ms=7.0)
    hiding = block([0.03, 0.03, 0.04], 10.0, processor_ms=9.0)
    rounds: list[Round] = [{REFERENCE: waiting, "kernel": hiding} for _ in range(3)]
    assert believed(rounds, Undisturbed(16.0, 35.0)) <= 0

    lighter = block([2.0, 2.0, 2.0], 9.0, processor_ms=3.5)
    rounds = [{REFERENCE: waiting, "kernel": lighter} for _ in range(3)]
    assert believed(rounds, Undisturbed(16.0, 35.0)) == pytest.approx(math.log(2), abs=0.05)


@pytest.mark.parametrize(("waited_ms", "refused"), [(0.0, True), (23.0, False)])
def test_a_kernel_whose_threads_waited_for_a_processor_is_timed_again_but_not_refused(
    monkeypatch: pytest.MonkeyPatch, waited_ms: float, refused: bool
) -> None:
    """Nor is it believed to be as fast as it reports."""
    delayed = block([1.1, 1.2, 1.3], 24.0, waited_ms=waited_ms)
    rounds: list[Round] = [{REFERENCE: block([3.0] * 3, 3.3), "kernel": delayed} for _ in range(3)]
    attempts: list[list[Round]] = []

    def run_rounds(*_: object, **__: object) -> list[Round]:
        attempts.append(rounds)
        return rounds

    monkeypatch.setattr(paired_timing, "run_rounds", run_rounds)
    monkeypatch.setattr(paired_timing, "_PAUSES_SECONDS", (0.0, 0.0))
    context: Any = SimpleNamespace(device=find_device("cpu"), undisturbed=UNDISTURBED, is_impossible=lambda *_: False)

    def run() -> list[Round]:
        return run_credible_rounds(context, {}, {}, {"kernel": None}, is_enough=lambda _: True)

    if refused:
        with pytest.raises(ClocksDisagree):
            run()
    else:
        assert hodges_lehmann(log_ratios(run(), "kernel")) < math.log(3.0 / 20.0)
    assert len(attempts) == 3


def test_clearly_slow_is_half_of_the_reference_or_of_the_best_kernel() -> None:
    twice = [math.log(2.0)] * 3
    assert is_clearly_slow([math.log(0.4)] * 3, 0.0)
    assert not is_clearly_slow(LEVEL, 0.0)
    assert not is_clearly_slow(LEVEL, 1.9)
    assert is_clearly_slow(LEVEL, 2.1)
    assert not is_clearly_slow(twice, 3.9)
    assert not is_clearly_slow([*LEVEL[:2], math.log(1.2)], 2.1), "not in each of the rounds"


def test_only_a_kernel_behind_the_best_in_every_round_is_timed_less() -> None:
    assert _is_behind(LEVEL, 1.2)
    assert not _is_behind(LEVEL, 1.1)
    assert not _is_behind(LEVEL, 0.0), "there is no best kernel yet"
    assert not _is_behind([*LEVEL[:2], math.log(1.09)], 1.2), "not in each of the rounds"


@pytest.mark.parametrize(
    ("in_trials", "timed", "calls"),
    [
        pytest.param(1.0, 1.0, [2], id="behind"),
        pytest.param(1.0, 2.0, [2, 10], id="not behind after all"),
        pytest.param(2.0, 2.0, [10], id="as fast as the best"),
    ],
)
def test_a_kernel_that_looks_behind_is_timed_in_short_rounds_first(
    monkeypatch: pytest.MonkeyPatch, in_trials: float, timed: float, calls: list[int]
) -> None:
    """Beside a best kernel of twice the speed of the reference."""
    seen: list[int] = []

    def run(_: object, __: object, plans: Any, *___: object, **____: object) -> list[Round]:
        seen.append(plans["kernel"].calls)
        return [{REFERENCE: block([3.0] * 2, 3.3), "kernel": block([3.0 / timed] * 2, 3.3)}] * plans["kernel"].rounds

    monkeypatch.setattr(paired_timing, "run_credible_rounds", run)
    context: Any = SimpleNamespace(
        judge=SimpleNamespace(settings=EvaluationSettings()),
        prepared=SimpleNamespace(most_calls=100),
        undisturbed=UNDISTURBED,
        best_speedup=2.0,
        reference=None,
    )
    candidate: Any = None
    time_beside_reference(context, candidate, UNDISTURBED.ms / in_trials, None)
    assert seen == calls


@pytest.mark.parametrize(
    ("speedup", "is_few"),
    [
        pytest.param(1.0, False, id="a tie is timed to 0.25 %"),
        pytest.param(1.03, False, id="near the reference"),
        pytest.param(1.5, True, id="0.5 % suffices for the best"),
        pytest.param(0.7, True, id="slower"),
    ],
)
def test_the_interval_is_narrow_where_it_decides(monkeypatch: pytest.MonkeyPatch, speedup: float, is_few: bool) -> None:
    """Rounds whose times differ by 0.3 % either way: five have half an interval of 0.41 %, twelve of 0.25 %."""
    monkeypatch.setattr(paired_timing.time, "monotonic", lambda: 0.0)
    seen: list[int] = []

    def run(*_: object, is_enough: Any) -> list[Round]:
        made: list[Round] = []
        while len(made) < 25 and not (len(made) and is_enough(made)):
            ms = 3.0 / speedup * (1.003 if len(made) % 2 else 0.997)
            made.append({REFERENCE: block([3.0] * 10, 3.3), "kernel": block([ms] * 10, 3.3)})
        seen.append(len(made))
        return made

    monkeypatch.setattr(paired_timing, "run_credible_rounds", run)
    context: Any = SimpleNamespace(
        judge=SimpleNamespace(settings=EvaluationSettings()),
        prepared=SimpleNamespace(most_calls=100),
        undisturbed=UNDISTURBED,
        best_speedup=speedup,
        reference=None,
    )
    candidate: Any = None
    time_beside_reference(context, candidate, UNDISTURBED.ms / speedup, None)
    assert (seen[-1] == 5) is is_few, seen
