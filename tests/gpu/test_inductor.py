"""Inductor's generated Triton as a starting kernel, on a real device."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Kernel
from kbevolve.configs.catalog import find_problem
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess, inductor_source

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
