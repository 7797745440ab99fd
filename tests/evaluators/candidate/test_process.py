"""The import of a kernel: no other kernel waits for it, and on a GPU it is paused while one is timed."""

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.process_group import ProcessGroup
from kbevolve.evaluators.sandbox.process_table import is_stopped

pytestmark = pytest.mark.usefixtures("own_locks")

CPU = find_device("cpu")
GPU = Device(type="cuda", index=0, fingerprint="cuda/double", description="a double")


class Sleeping(ProcessGroup):
    """A worker that does nothing, in a process."""

    deadline = 100.0


@pytest.fixture
def worker() -> Iterator[Sleeping]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield Sleeping(process.pid)
    process.kill()
    process.wait()


def candidate(worker: Any, device: Device, gate: DeviceGate) -> CandidateProcess:
    prepared: Any = None
    return CandidateProcess(worker, device, prepared, EvaluationSettings(), "", gate=gate)


def test_on_a_gpu_timing_pauses_an_import_and_does_not_wait_for_it(worker: Sleeping) -> None:
    gate = DeviceGate(CPU)
    with candidate(worker, GPU, gate).in_background():
        assert not is_stopped(worker.leader)
        with gate.exclusive():
            assert is_stopped(worker.leader)
            time.sleep(0.1)
        assert not is_stopped(worker.leader)
    assert 100.1 < worker.deadline < 105, "its pauses count against the kernel"


def test_on_a_cpu_timing_waits_for_an_import(worker: Sleeping) -> None:
    gate = DeviceGate(CPU)
    with (
        candidate(worker, CPU, gate).in_background(),
        pytest.raises(RuntimeError, match="shares the device"),
        gate.exclusive(),
    ):
        pass
