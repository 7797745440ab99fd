"""What it costs to launch a call, measured on a simulated device that runs beside the host."""

import math
from collections.abc import Callable

import pytest
import torch

from kbevolve.evaluators.worker import launch_cost as measured
from kbevolve.evaluators.worker.launch_cost import launch_cost

#: Microseconds in which the device writes what flushes the L2.
FLUSH = 60.0


class SimulatedDevice:
    """A host and a device with a clock each, in microseconds: the device runs in order what the host has launched."""

    def __init__(self) -> None:
        self.host = 0.0
        self.device = 0.0
        self.calls = 0

    def launch(self, *, host: float, device: float) -> None:
        self.host += host
        self.device = max(self.device, self.host) + device

    def synchronize(self) -> None:
        self.host = max(self.host, self.device)

    def record(self, event: list[float], _: object) -> None:
        event[:] = [max(self.device, self.host)]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    made = SimulatedDevice()
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: "default")
    monkeypatch.setattr(torch.cuda, "set_stream", lambda _: None)
    monkeypatch.setattr(measured, "_FLUSHED", 1)
    monkeypatch.setattr(measured, "_clock", lambda: int(1e3 * made.host))
    monkeypatch.setattr(measured, "_fill", lambda *_: made.launch(host=0.0, device=FLUSH))
    monkeypatch.setattr(measured, "synchronize", made.synchronize)
    monkeypatch.setattr(measured, "new_event", lambda: [math.nan])
    monkeypatch.setattr(measured, "record", made.record)
    monkeypatch.setattr(measured, "elapsed", lambda start, end: (end[0] - start[0]) / 1e3)
    return made


def kernels(made: SimulatedDevice, count: int, *, device_us: float, host_us: float = 5.0) -> Callable[[], None]:
    """A call of so many kernels; the first call of all takes 0.1 s more."""

    def call() -> None:
        made.calls += 1
        made.host += 1e5 if made.calls == 1 else 0.0
        for _ in range(count):
            made.launch(host=host_us, device=device_us)

    return call


def costs(made: SimulatedDevice, call: Callable[[], None]) -> tuple[float, float]:
    found = launch_cost(call, torch.device("cpu"))
    return found["host_ms"], found["kernelbench_ms"]


def test_many_launches_cost_the_host_more_than_one(device: SimulatedDevice) -> None:
    assert costs(device, kernels(device, 1, device_us=40.0)) == pytest.approx((0.005, 0.040))
    device.calls = 0
    # The device waits for launches from the 13th on: 40 x 5 µs, of which the flush hides 60, and the last kernel.
    assert costs(device, kernels(device, 40, device_us=1.0)) == pytest.approx((0.200, 0.141))


def test_launches_that_the_flush_hides_are_not_inside(device: SimulatedDevice) -> None:
    assert costs(device, kernels(device, 10, device_us=4.0)) == pytest.approx((0.050, 0.040))


def test_a_long_call_is_timed_once_and_a_short_one_more_often(device: SimulatedDevice) -> None:
    costs(device, kernels(device, 1, device_us=1e6))
    assert device.calls == 2
    device.calls = 0
    costs(device, kernels(device, 1, device_us=1.0, host_us=1.0))
    assert device.calls == 11
