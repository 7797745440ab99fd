"""What a bench believes of a time, on rates that may have been measured on a busy machine."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbevolve.archive.records import ProblemCard
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.judging import context
from kbevolve.evaluators.judging.context import Bench
from kbevolve.evaluators.timing.clock import Alone

CPU = find_device("cpu")
CUDA = Device(type="cuda", index=0, fingerprint="cuda/test", description="test")
CARD = ProblemCard(problem="p", device="d", precision="fp32", floor_ms={"fp32": 1.0})


class _Anything:
    """Stands for what `is_impossible` only hands on."""

    def __getattr__(self, name: str) -> Any:
        return self


def bench_on(device: Device, card: ProblemCard) -> Bench:
    bench = object.__new__(Bench)
    bench.device, bench.card = device, card
    bench.alone = Alone(2.0, 0.1)
    bench.prepared = cast(Any, _Anything())
    bench.court = cast(Any, SimpleNamespace(gate=DeviceGate(CPU), device=device, settings=_Anything(), disk_cache=None))
    return bench


def test_a_cpu_refuses_nothing_by_its_rates() -> None:
    bench = bench_on(CPU, CARD)
    assert bench.is_beyond_roofline(0.5, "fp32")
    assert not bench.is_impossible(0.5, "fp32")


@pytest.mark.parametrize(("floor_ms", "impossible"), [(1.1, True), (0.4, False)])
def test_a_gpu_measures_its_rates_again_before_it_refuses(
    monkeypatch: pytest.MonkeyPatch, floor_ms: float, impossible: bool
) -> None:
    asked = []

    def measured(device: Device, *, disk_cache: object, fresh: bool) -> str:
        asked.append(fresh)
        return "rates"

    monkeypatch.setattr(context, "roofline_of", measured)
    monkeypatch.setattr(context, "inspect", lambda *_, **__: replace(CARD, floor_ms={"fp32": floor_ms}))
    bench = bench_on(CUDA, CARD)
    assert bench.is_impossible(0.5, "fp32") is impossible
    assert asked == [True]
    assert bench.card.floor_ms == {"fp32": floor_ms}


def test_a_time_above_the_floor_or_of_no_class_is_nobodys_business() -> None:
    bench = bench_on(CUDA, CARD)
    assert not bench.is_impossible(0.95, "fp32")
    assert not bench.is_impossible(0.5, None)
