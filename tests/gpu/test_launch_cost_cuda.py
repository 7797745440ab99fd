"""What launches cost on a real device: the host's time, and what KernelBench's way of timing shows of it."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kbevolve.archive.records import Kernel, LaunchCost, Profile, Verdict
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.worker.launch_cost import launch_cost
from kbevolve.evaluators.worker.timing import Stopwatch
from tests.gpu.test_judge_cuda import SETTINGS, candidate, problem
from tests.gpu.test_profile_cuda import TRITON
from tests.imported import imported

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DEVICE = torch.device("cuda")
#: Launches of the many, and microseconds of Python before each, as a slow launcher needs them.
MANY, PYTHON_US = 64, 10
#: 65 launches where 2 do the same.
ROW_BY_ROW = """
y = torch.empty_like(x)
for start in range(0, x.shape[0], 64):
    torch.add(x[start : start + 64], self.bias, out=y[start : start + 64])
return y.relu_()
"""


def doubling(parts: int) -> Callable[[], torch.Tensor]:
    """A call that doubles a small tensor in so many launches."""
    small = torch.rand(1 << 16, device=DEVICE)
    doubled = torch.empty_like(small)
    pairs = list(zip(small.chunk(parts), doubled.chunk(parts), strict=True))

    def call() -> torch.Tensor:
        for part, into in pairs:
            begun = time.perf_counter()
            while time.perf_counter() - begun < PYTHON_US / 1e6:
                pass
            torch.mul(part, 2.0, out=into)
        return doubled

    return call


def as_judged_ms(call: Callable[[], torch.Tensor]) -> float:
    """Milliseconds by the judge's window; 2 GiB of inputs keep the device busy while the host launches."""
    large = torch.zeros(1 << 29, device=DEVICE)
    buffer, stopwatch = torch.empty_like(large), Stopwatch(DEVICE)
    times = [
        stopwatch.time(call, buffers=[buffer], contents=[large], deliver=lambda output: output.clone())[0]
        for _ in range(10)
    ]
    return statistics.median(times)


@pytest.mark.alone  # it compares times
def test_kernelbenchs_timing_includes_launches_that_the_judges_hides() -> None:
    one, many = doubling(1), doubling(MANY)
    ours = {call: as_judged_ms(call) for call in (one, many)}
    found = {call: launch_cost(call, DEVICE) for call in (one, many)}
    print("as judged", list(ours.values()), "launch cost", list(found.values()))
    assert found[many]["host_ms"] > 10 * found[one]["host_ms"]
    assert found[many]["host_ms"] > MANY * PYTHON_US / 1e3
    assert found[many]["kernelbench_ms"] > 2 * ours[many]
    theirs = found[one]["kernelbench_ms"] / found[many]["kernelbench_ms"]
    assert theirs < 0.5 * ours[one] / ours[many]


def test_the_judge_reports_launches_and_the_hosts_time_of_kernel_and_reference() -> None:
    def cost(judge: Judge, source: str) -> tuple[LaunchCost, Profile]:
        found = judge.evaluate(problem(), Kernel.from_source(source))
        assert found.verdict is Verdict.CORRECT, found.message
        assert found.profile is not None
        assert found.profile.launch_cost is not None
        print(found.timing.speedup, found.profile.launch_cost, found.execution.phases, found.profile.bottleneck)
        return found.profile.launch_cost, found.profile

    with Judge(find_device("cuda"), SETTINGS) as judge:
        many, profile = cost(judge, candidate(ROW_BY_ROW))
        same, _ = cost(judge, candidate("return torch.relu(x + self.bias)"))
    assert (many.launches, same.launches) == (65, 2)
    assert many.host_ms > 4 * same.host_ms
    assert many.reference_host_ms == same.reference_host_ms
    assert profile.bottleneck.startswith("launch-bound")
    assert 0.8 < same.kernelbench_speedup < 1.25
    assert 0.3 < same.host_ms / same.reference_host_ms < 3
    assert many.kernelbench_speedup < same.kernelbench_speedup


@pytest.fixture
def triton(tmp_path: Path) -> ModuleType:
    """A Triton kernel that doubles a tensor."""
    return imported(TRITON, tmp_path, "doubling")


def test_a_triton_kernel_that_is_looked_up_once_costs_the_host_less(triton: ModuleType) -> None:
    """As the playbook's "A launcher that is looked up once" says."""
    x = torch.rand(1 << 20, device=DEVICE)
    y, grid = torch.empty_like(x), (1 << 10, 1, 1)
    compiled = triton.doubled_kernel[grid](x, y, x.numel(), BLOCK=1024)
    y.zero_()
    compiled[grid](x, y, x.numel(), 1024)
    torch.testing.assert_close(y, 2 * x)
    usual = launch_cost(lambda: triton.doubled_kernel[grid](x, y, x.numel(), BLOCK=1024), DEVICE)["host_ms"]
    cached = launch_cost(lambda: compiled[grid](x, y, x.numel(), 1024), DEVICE)["host_ms"]
    print(f"{1e3 * usual:.1f} µs, looked up once {1e3 * cached:.1f} µs")
    assert cached < 0.9 * usual
