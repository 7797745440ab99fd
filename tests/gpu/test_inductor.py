"""Inductor's generated Triton as a starting kernel, on a real device."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess, inductor_source
from kbevolve.evolve.proposers.seeds.replayed import replayed_reference
from kbevolve.evolve.proposers.tuning.tunables import with_values

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["L1/softmax", "L2/gemm_bias_relu"])
def test_generated_triton_stands_alone_and_computes_the_same(name: str, tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    problem = find_problem(name)
    source = inductor_source(problem, "cuda")
    # Triton reads its kernels' text back from a file.
    (tmp_path / "kernel.py").write_text(source)
    reference: dict[str, Any] = {}
    kernel: dict[str, Any] = {}
    exec(problem.source, reference)
    exec(compile(source, str(tmp_path / "kernel.py"), "exec"), kernel)
    with torch.device("cuda"), torch.no_grad():
        torch.manual_seed(0)
        old = reference["Model"](*reference["get_init_inputs"]()).eval()
        torch.manual_seed(0)
        new = kernel["ModelNew"](*reference["get_init_inputs"]()).eval()
        inputs = reference["get_inputs"]()
        answer, expected = new(*inputs), old(*inputs)
    assert float((answer - expected).norm() / expected.norm()) < 1e-5


LAYERS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.LayerNorm(256))))

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []
"""


def test_many_small_launches_are_replayed_as_one(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    (tmp_path / "layers.py").write_text(LAYERS)
    problem = find_problem(str(tmp_path / "layers.py"))
    source = inductor_source(problem, "cuda")
    assert "return replay([" in source
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        replayed, called = (
            judge.evaluate(problem, Kernel.from_source(with_values(source, {"REPLAYED": value}))) for value in "10"
        )
    assert replayed.verdict is called.verdict is Verdict.CORRECT, replayed.message + called.message
    assert replayed.timing.speedup is not None
    assert called.timing.speedup is not None
    print(f"{replayed.timing.speedup:.2f} times eager as one launch, {called.timing.speedup:.2f} as many")
    assert replayed.timing.speedup > 1.2 * called.timing.speedup


RECURRENT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(64, 64, num_layers=2)

    def forward(self, x, h):
        return self.layer(x, h)


def get_inputs():
    return [torch.randn(50, 8, 64), torch.randn(2, 8, 64)]


def get_init_inputs():
    return []
"""


def test_a_recurrent_reference_in_a_graph_is_correct(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    (tmp_path / "recurrent.py").write_text(RECURRENT)
    problem = find_problem(str(tmp_path / "recurrent.py"))
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        source = with_values(replayed_reference(problem.source), {"REPLAYED": "1"})
        found = judge.evaluate(problem, Kernel.from_source(source))
    assert found.verdict is Verdict.CORRECT, found.message
    print(f"{found.timing.speedup:.2f} times eager")


def test_its_backend_is_triton() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert Kernel.from_source(inductor_source(find_problem("L1/gelu"), "cuda")).backend is Backend.TRITON


@pytest.mark.alone  # it compares the device's free memory
@pytest.mark.slow
def test_it_uses_the_device_only_when_it_is_asked_and_no_kernel_is_timed() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = find_device("cuda")
    free = torch.cuda.mem_get_info()[0]
    with (
        InductorProcess(find_problem("L1/gelu"), "cuda", device=device) as process,
        ThreadPoolExecutor(1) as threads,
    ):
        time.sleep(15)  # it imports
        with lock.exclusive(device):
            source = threads.submit(process.source)
            time.sleep(5)
            assert not source.done()
            assert free - torch.cuda.mem_get_info()[0] < 1 << 26, "it made a context"
        assert "async_compile.triton" in source.result()
