"""Which times are impossible, when the cached rates may have been measured on a busy machine."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kbevolve.archive.records import ProblemCard
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging import context as module
from kbevolve.evaluators.judging.context import ProblemContext
from kbevolve.evaluators.timing.clock import Undisturbed

CPU = find_device("cpu")
CUDA = Device(type="cuda", index=0, fingerprint="cuda/test", description="test")
CARD = ProblemCard(problem="p", device="d", precision="fp32", floor_ms={"fp32": 1.0})


def context_on(device: Device) -> ProblemContext:
    context: Any = object.__new__(ProblemContext)
    context.device, context.card, context.undisturbed = device, CARD, Undisturbed(2.0, 0.1)
    context.prepared = MagicMock()
    context.judge = SimpleNamespace(gate=DeviceGate(CPU), device=device, settings=MagicMock(), disk_cache=None)
    made: ProblemContext = context
    return made


def test_on_a_cpu_no_time_is_impossible() -> None:
    context = context_on(CPU)
    assert context.is_beyond_roofline(0.5, "fp32")
    assert not context.is_impossible(0.5, "fp32")


@pytest.mark.parametrize(("floor_ms", "impossible"), [(1.1, True), (0.4, False)])
def test_the_rates_of_a_gpu_are_measured_again_before_a_refusal(
    monkeypatch: pytest.MonkeyPatch, floor_ms: float, impossible: bool
) -> None:
    measured = []

    def card_for(*_: object, fresh: bool, **__: object) -> ProblemCard:
        measured.append(fresh)
        return replace(CARD, floor_ms={"fp32": floor_ms})

    monkeypatch.setattr(module, "card_for", card_for)
    context = context_on(CUDA)
    assert context.is_impossible(0.5, "fp32") is impossible
    assert measured == [True]
    assert context.card.floor_ms == {"fp32": floor_ms}


def test_a_time_above_the_floor_or_without_a_class_is_possible() -> None:
    context = context_on(CUDA)
    assert not context.is_impossible(0.95, "fp32")
    assert not context.is_impossible(0.5, None)
