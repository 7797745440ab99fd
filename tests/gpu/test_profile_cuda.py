"""PyTorch's own ways to run a model, the profiler and the counters, on a real device."""

import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.feedback.counters import read_counters
from kbevolve.evaluators.feedback.profile import read_profile
from kbevolve.evaluators.worker.baselines import Replayed, wrap
from kbevolve.evaluators.worker.profiling import profile
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Inductor advises on TF32 and on its own search
]

TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def doubled_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        doubled_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.rand(1 << 24)]


def get_init_inputs():
    return []
"""


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1.0).sum(dim=0)


@pytest.fixture
def candidate(tmp_path: Path) -> ModuleType:
    """The Triton kernel, imported as a worker imports it."""
    return imported(TRITON, tmp_path, "candidate")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eager", "compile", "graph", "max-autotune"])
def test_answers_follow_contents_that_change_in_place_and_other_tensors(kind: str) -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).cuda().eval()
    with torch.no_grad():
        call, inputs = wrap(model, kind), torch.randn(128, 256, device="cuda")
        for _ in range(3):
            torch.testing.assert_close(call(inputs), model(inputs), rtol=1e-4, atol=1e-5)
            inputs.normal_()
        others = torch.randn(128, 256, device="cuda")
        torch.testing.assert_close(call(others), model(others), rtol=1e-4, atol=1e-5)
        model[0].weight.mul_(2.0)
        torch.testing.assert_close(call(others), model(others), rtol=1e-4, atol=1e-5)


def test_a_reference_that_changes_its_inputs_changes_them_once_a_call() -> None:
    call, inputs = wrap(InPlace().cuda(), "graph"), torch.zeros(4, 8, device="cuda")
    with torch.no_grad():
        for number in (1, 2, 3):
            assert float(call(inputs)[0]) == 4 * number
    assert float(inputs[0, 0]) == 3


def test_what_cannot_be_captured_is_called_plainly_where_that_is_allowed() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum())  # waits for the device, which a capture forbids

    inputs = torch.ones(4, device="cuda")
    assert float(Replayed(call, fall_back=True)(inputs)[0]) == 4
    with pytest.raises(RuntimeError):
        Replayed(call, fall_back=False)(inputs)
    assert float((inputs + 1).sum()) == 8  # the device still works, and its random numbers
    assert torch.rand(4, device="cuda").sum() > 0


def test_launches_come_with_registers_and_occupancy(candidate: ModuleType) -> None:
    model, inputs = candidate.ModelNew().eval(), torch.rand(1 << 24, device="cuda")
    model(inputs)
    reported = profile(lambda: model(inputs))
    found = read_profile(reported, time_ms=0.05)
    (launch,) = found.launches
    assert launch.name == "doubled_kernel"
    assert not launch.library
    assert launch.launches == 1
    assert 5 < launch.microseconds < 1000
    assert launch.registers is not None
    assert launch.registers >= 8
    assert launch.spilled == 0
    assert launch.blocks_per_sm is not None
    assert launch.blocks_per_sm > 10


def test_one_kernel_in_two_sizes_has_two_entries(candidate: ModuleType) -> None:
    model, large, small = candidate.ModelNew().eval(), *(torch.rand(1 << bits, device="cuda") for bits in (24, 20))

    def call() -> None:
        model(large)
        model(small)

    call()
    found = read_profile(profile(call), time_ms=1.0).launches
    assert [one.name for one in found] == ["doubled_kernel", "doubled_kernel"]
    assert [one.blocks for one in found] == [1 << 14, 1 << 10]
    assert found[0].threads is not None
    assert found[0].threads >= 32


def test_times_are_scaled_to_a_call_that_is_shorter(candidate: ModuleType) -> None:
    model, inputs = candidate.ModelNew().eval(), torch.rand(1 << 24, device="cuda")
    model(inputs)
    found = read_profile(profile(lambda: model(inputs)), time_ms=0.001)
    assert found.profiled_ms is not None
    assert found.profiled_ms > 0.001
    assert found.launches[0].microseconds == pytest.approx(1.0)


def test_library_kernels_are_distinguished_from_own_ones() -> None:
    matrix = torch.rand(1024, 1024, device="cuda")
    found = read_profile(profile(lambda: torch.relu(matrix @ matrix)), time_ms=1.0)
    assert len(found.launches) >= 2
    assert all(launch.library for launch in found.launches)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu")
def test_counters_are_read_or_refused_in_a_line() -> None:
    problem = parse_problem(PROBLEM, name="double", path=Path("double.py"))
    found = read_counters(problem, TRITON, device=find_device("cuda"), precision="fp32", seconds=120)
    if found.refusal:
        assert "administrators" in found.refusal
        return
    assert "doubled_kernel" in found.kernel
    assert 10 < found.readings["DRAM busy"] <= 100
    assert found.readings["registers a thread"] >= 8
    assert 100 < found.readings["DRAM GB/s"] < 20_000
    assert 300 < found.readings["SM clock MHz"] < 4_000
    assert "shared memory busy" in found.readings
