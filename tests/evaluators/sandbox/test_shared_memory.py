"""Memory that the judge shares with a worker."""

import os

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory


def test_a_failed_allocation_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(EvaluatorError, match="shared memory"):
        SharedMemory(find_device("cpu"), 1 << 20)
    assert len(os.listdir("/proc/self/fd")) == before
