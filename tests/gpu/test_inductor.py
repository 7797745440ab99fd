"""Inductor's generated Triton as a starting kernel, on a real device."""

from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Backend, Kernel
from kbevolve.configs.catalog import find_problem
from kbevolve.evolve.proposers.seeds.inductor_process import inductor_source

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
