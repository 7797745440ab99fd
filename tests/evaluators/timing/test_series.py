"""What the judge believes of the times of a series."""

from types import SimpleNamespace

import pytest

from kbevolve.evaluators.devices import find_device
from kbevolve.evaluators.timing.rounds import Block
from kbevolve.evaluators.timing.series import REFERENCE, Round, _doubted, log_ratios
from kbevolve.evaluators.timing.statistics import hodges_lehmann
from tests.evaluators.timing.test_clock import calls


def block(told: list[float], trip: float) -> Block:
    """Calls whose round trips take as long, whatever they tell."""
    return Block(calls=tuple(call for ms in told for call in calls(ms, [trip - ms])))


def believed(held: list[Round]) -> float:
    bench = SimpleNamespace(device=find_device("cpu"), reference_ms=3.0)
    return hodges_lehmann(log_ratios(_doubted(bench, held, ["kernel"]), "kernel"))  # type: ignore[arg-type]


def test_a_kernel_that_lies_in_most_calls_of_most_rounds_gains_nothing() -> None:
    lying, honest = block([0.5] * 6 + [3.0] * 4, 3.3), block([3.0] * 10, 3.3)
    held: list[Round] = [{REFERENCE: honest, "kernel": one} for one in (lying, lying, honest, lying, lying)]
    assert hodges_lehmann(log_ratios(held, "kernel")) > 1
    assert believed(held) <= 0


def test_the_times_of_an_honest_kernel_stand() -> None:
    held: list[Round] = [{REFERENCE: block([3.0] * 4, 3.3), "kernel": block([1.5] * 4, 1.8)} for _ in range(5)]
    assert believed(held) == pytest.approx(hodges_lehmann(log_ratios(held, "kernel")))
