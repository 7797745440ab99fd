"""A real worker reports the traits of its Triton kernels; no report and no failure decides a verdict."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from kbevolve.archive.records import Trait
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker import Worker

CPU = find_device("cpu")
MODEL = "\nclass ModelNew:\n    pass\n"
#: A module as Triton leaves it.
TRITON = """
from types import SimpleNamespace
ptx = "mma.sync.aligned.m16n8k16 {%r1};\\n\\tcp.async.cg.shared.global [%r1], [%rd1], 16;"
compiled = SimpleNamespace(asm={"ptx": ptx})
product = SimpleNamespace(device_caches={0: ({"key": compiled}, {}, None)})
"""
RAISES = (
    TRITON + "\nclass Broken:\n    asm = property(lambda self: 1 / 0)\nproduct.device_caches[0][0]['key'] = Broken()\n"
)
LIES = TRITON + (
    "\nimport sys\n"
    "sys.modules['kbevolve.evaluators.worker.service'].triton_traits = lambda: ['atomics', 'telepathy', 7, {}]\n"
)
DIES = TRITON + "\nimport os\nclass Last:\n    asm = property(lambda self: os._exit(0))\n"
DIES += "product.device_caches[0][0]['key'] = Last()\n"


@pytest.fixture
def worker(fork_server: ForkServer | None) -> Iterator[Worker]:
    worker = Worker(CPU, fork_server)
    worker.wait_ready()
    yield worker
    worker.kill()


@pytest.mark.parametrize(
    ("source", "traits"),
    [
        ("", None),
        (TRITON, (Trait.SHARED_MEMORY, Trait.ASYNC_COPY, Trait.MATRIX_UNITS)),
        (RAISES, None),
        (LIES, (Trait.ATOMICS,)),
        (DIES, None),
    ],
    ids=["no Triton", "Triton", "raises", "lies", "dies"],
)
@pytest.mark.slow
def test_a_worker_reports_traits_or_none(worker: Worker, source: str, traits: tuple[Trait, ...] | None) -> None:
    prepared = cast(Any, None)  # traits do not depend on the problem
    kernel = CandidateProcess(worker, CPU, prepared, EvaluationSettings(), source + MODEL, gate=DeviceGate(CPU))
    kernel.load()
    assert kernel.traits() == traits
