"""The seconds that each phase of an evaluation takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kbevolve.evaluators.device.gate import DeviceGate

#: The phase in which an evaluation waits for the device.
WAITING = "device wait"


class Phases:
    """Seconds by phase, in the order in which the phases began. The wait for the device is a phase of its own."""

    def __init__(self, gate: DeviceGate) -> None:
        self.seconds: dict[str, float] = {}
        self._gate = gate

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside to a phase. Phases do not nest."""
        self.seconds.setdefault(name, 0.0)
        started, waited = time.perf_counter(), self._gate.waited
        try:
            yield
        finally:
            waiting = self._gate.waited - waited
            self.seconds[name] += time.perf_counter() - started - waiting
            if waiting:
                self.seconds[WAITING] = self.seconds.get(WAITING, 0.0) + waiting
