"""Kernels of torch.compile with tunables: the same values whatever the blocks, warps and stages are."""

from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.inductor_process import inductor_source
from kbevolve.evolve.proposers.seeds.tunable_kernels import with_tunable_kernels
from kbevolve.evolve.proposers.tuning.constraints import fits
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values
from tests.imported import imported

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return BODY


def get_inputs():
    return [torch.randn(SHAPE)]


def get_init_inputs():
    return []
"""
#: Body of the model, shape of its input, and what stands in the name of a kernel that gets tunables.
CASES = {
    "pointwise": ("torch.nn.functional.gelu(x) * 2", "1023, 4097", "XBLOCK"),
    "pointwise in two dimensions": ("(x.transpose(1, 2).contiguous() + 1)", "9, 515, 1030", "YBLOCK"),
    "sums of long rows": ("(x * x).sum(-1)", "37, 100003", "R0_BLOCK"),
    "maxima of columns": ("x.amax(1)", "7, 1000, 4095", "R0_BLOCK"),
    "softmax of short rows": ("torch.softmax(x, -1)", "3001, 517", "WARPS"),
    "sums along long rows": ("torch.cumsum(x, -1)", "64, 70001", "R0_BLOCK"),
    "sums along one row": ("torch.cumsum(x, -1)", "1, 3000001", "R0_BLOCK"),
}


@pytest.mark.parametrize("case", CASES)
def test_all_settings_compute_the_same(case: str, tmp_path: Path) -> None:
    body, shape, wanted = CASES[case]
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.replace("BODY", body).replace("SHAPE", shape))
    problem = find_problem(str(path))
    source = with_tunable_kernels(inductor_source(problem, "cuda"))
    assert source is not None
    tunables = declared(source)
    assert any(wanted in one.name for one in tunables), [one.name for one in tunables]
    reference = imported(problem.source, tmp_path, "reference").Model()
    x = torch.randn(tuple(map(int, shape.split(", "))), device="cuda")
    expected = reference(x.double())
    scale = expected.abs().max()
    ends = [{}, *({one.name: choice} for one in tunables for choice in (one.choices[0], one.choices[-1]))]
    settings = [values for values in ends if fits(source, values_of(source) | values)]
    assert len(settings) > 2
    for number, values in enumerate(settings):
        kernel = imported(with_values(source, values), tmp_path, f"kernel{number}").ModelNew()
        try:
            answer = kernel(x)
        except Exception as error:  # more than the device has is no wrong value
            if "resource" in str(error).lower() or "shared memory" in str(error).lower():
                continue
            raise
        assert (answer - expected).abs().max() / scale < 1e-4, values


def test_the_judge_accepts_it_and_counts_it_as_triton(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.replace("BODY", "x.amax(1)").replace("SHAPE", "64, 4096, 1023"))
    problem = find_problem(str(path))
    source = with_tunable_kernels(inductor_source(problem, "cuda"))
    assert source is not None
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        found = judge.evaluate(problem, Kernel.from_source(source))
    assert found.verdict is Verdict.CORRECT, found.message
    assert Kernel.from_source(source).backend == "triton"
    print(f"{found.timing.speedup:.2f} times eager")
