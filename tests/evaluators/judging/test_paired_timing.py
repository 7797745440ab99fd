"""What the judge believes of the times of a series."""

import math
from types import SimpleNamespace

import pytest

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging import paired_timing
from kbevolve.evaluators.judging.paired_timing import REFERENCE, Round, _doubted, hold_believed, log_ratios
from kbevolve.evaluators.timing.clock import Alone, ClocksDisagree
from kbevolve.evaluators.timing.rounds import Block
from kbevolve.evaluators.timing.statistics import hodges_lehmann
from tests.evaluators.timing.test_clock import calls

ALONE = Alone(3.0, 0.3)


def block(told: list[float], trip: float, processor_ms: float | None = None, waited_ms: float = 0.0) -> Block:
    """Calls whose round trips take as long, whatever they tell."""
    return Block(
        calls=tuple(call for ms in told for call in calls(ms, [trip - ms])),
        trip_ms=trip,
        processor_ms=trip if processor_ms is None else processor_ms,
        waited_ms=waited_ms,
    )


def believed(held: list[Round], alone: Alone = ALONE) -> float:
    bench = SimpleNamespace(device=find_device("cpu"), alone=alone)
    return hodges_lehmann(log_ratios(_doubted(bench, held, ["kernel"]), "kernel"))  # type: ignore[arg-type]


def test_a_kernel_that_lies_in_most_calls_of_most_rounds_gains_nothing() -> None:
    lying, honest = block([0.5] * 6 + [3.0] * 4, 3.3), block([3.0] * 10, 3.3)
    held: list[Round] = [{REFERENCE: honest, "kernel": one} for one in (lying, lying, honest, lying, lying)]
    assert hodges_lehmann(log_ratios(held, "kernel")) > 1
    assert believed(held) <= 0


def test_the_times_of_an_honest_kernel_stand() -> None:
    held: list[Round] = [{REFERENCE: block([3.0] * 4, 3.3), "kernel": block([1.5] * 4, 1.8)} for _ in range(5)]
    assert believed(held) == pytest.approx(hodges_lehmann(log_ratios(held, "kernel")))


def test_on_an_overloaded_machine_nobody_gains_more_than_he_saves_of_processor_time() -> None:
    """As it was once seen: the reference is delayed in all of its calls, those that it was gauged by too."""
    waiting = block([16.0, 20.0, 16.0], 60.0, processor_ms=7.0)
    hiding = block([0.03, 0.03, 0.04], 10.0, processor_ms=9.0)
    held: list[Round] = [{REFERENCE: waiting, "kernel": hiding} for _ in range(3)]
    assert believed(held, Alone(16.0, 35.0)) <= 0

    lighter = block([2.0, 2.0, 2.0], 9.0, processor_ms=3.5)
    held = [{REFERENCE: waiting, "kernel": lighter} for _ in range(3)]
    assert believed(held, Alone(16.0, 35.0)) == pytest.approx(math.log(2), abs=0.05)


@pytest.mark.parametrize(("waited_ms", "refused"), [(0.0, True), (23.0, False)])
def test_a_kernel_that_waited_for_a_processor_is_timed_again_and_not_refused_for_it(
    monkeypatch: pytest.MonkeyPatch, waited_ms: float, refused: bool
) -> None:
    """Nor is it believed to be as fast as it told."""
    delayed = block([1.1, 1.2, 1.3], 24.0, waited_ms=waited_ms)
    held: list[Round] = [{REFERENCE: block([3.0] * 3, 3.3), "kernel": delayed} for _ in range(3)]
    times: list[list[Round]] = []

    def again(*_: object, **__: object) -> list[Round]:
        times.append(held)
        return held

    monkeypatch.setattr(paired_timing, "hold", again)
    monkeypatch.setattr(paired_timing, "_PAUSES_SECONDS", (0.0, 0.0))
    bench = SimpleNamespace(device=find_device("cpu"), alone=ALONE, is_impossible=lambda *_: False)

    def hear() -> list[Round]:
        return hold_believed(bench, {}, {}, {"kernel": None}, is_enough=lambda _: True)  # type: ignore[arg-type]

    if refused:
        with pytest.raises(ClocksDisagree):
            hear()
    else:
        assert hodges_lehmann(log_ratios(hear(), "kernel")) < math.log(3.0 / 20.0)
    assert len(times) == 3
