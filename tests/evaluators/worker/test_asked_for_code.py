"""A real worker is asked what shows in its code; whatever it says or does, that is no verdict."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from kbevolve.archive.records import Trait
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox.worker import Worker

CPU = find_device("cpu")
MODEL = "\nclass ModelNew:\n    pass\n"
#: What Triton leaves in a module, in a few lines.
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
    "sys.modules['kbevolve.evaluators.worker.service'].shown_by_triton = lambda: ['atomics', 'telepathy', 7, {}]\n"
)
DIES = TRITON + "\nimport os\nclass Last:\n    asm = property(lambda self: os._exit(0))\n"
DIES += "product.device_caches[0][0]['key'] = Last()\n"


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(CPU)
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
def test_a_worker_tells_or_does_not(worker: Worker, source: str, traits: tuple[Trait, ...] | None) -> None:
    prepared = cast(Any, None)  # that it is asked for code rests on no problem
    kernel = CandidateProcess(worker, CPU, prepared, EvaluationSettings(), source + MODEL, gate=DeviceGate(CPU))
    kernel.load()
    assert kernel.traits() == traits
