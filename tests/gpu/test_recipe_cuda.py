"""KernelBench's recipe on a real device: its four clocks, and its default flags, which let cuDNN use TF32."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import KernelBenchSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.recipe import Outcome, RecipeVerdict, judge_by_recipe
from kbevolve.evaluators.worker.recipe_timing import METHODS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CONVOLUTION = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(256, 256, 3)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn(8, 256, 64, 64)]
def get_init_inputs():
    return []
"""


def judged(source: str, folder: Path, **settings: Any) -> RecipeVerdict:
    problem = parse_problem(CONVOLUTION, name="convolution", path=folder / "problem.py")
    chosen = KernelBenchSettings(**{"timed_calls": 20, **settings})
    return judge_by_recipe(problem, Kernel.from_source(source), find_device("cuda"), "fp32", chosen)


@pytest.mark.parametrize("method", METHODS)
def test_every_clock_finds_a_copy_of_the_reference_as_fast(method: str, tmp_path: Path) -> None:
    found = judged(CONVOLUTION.replace("Model(", "ModelNew("), tmp_path, timing=method)
    assert (found.outcome, found.timing) == (Outcome.CORRECT, method), found
    assert found.speedup == pytest.approx(1.0, abs=0.2)
    assert found.kernel_ms is not None
    assert method == "do_bench" or found.kernel_ms["calls"] == 20


def test_a_kernel_more_accurate_than_the_reference_is_incorrect_there(tmp_path: Path) -> None:
    exact = CONVOLUTION.replace("Model(", "ModelNew(").replace(
        "return self.layer(x)", "torch.backends.cudnn.allow_tf32 = False; return self.layer(x)"
    )
    # The reference of the next trial runs without TF32, too, so one trial decides.
    found = judged(exact, tmp_path, trials=1, performance=False)
    assert found.outcome is Outcome.INCORRECT, found
