"""CUDA kernels that nvcc makes one machine code of are judged once on a real GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.islands.source.canonical import shell_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(3.0 * x + 1.0)


def get_inputs():
    return [torch.randn(4096, 8192)]


def get_init_inputs():
    return []
"""

INLINE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__global__ void apply(const float* x, float* y, long count) {
  const long start = 4 * (blockIdx.x * (long)blockDim.x + threadIdx.x);
  for (int i = 0; i < 4; i++) {
    const long at = start + i;
    if (at < count) { const float value = 3.0f * x[at] + 1.0f; y[at] = value > 0 ? value : 0; }
  }
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const long count = x.numel();
  apply<<<(count + 1023) / 1024, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
  return y;
}
"""
module = load_inline(
    name="apply", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=CUDA, functions=["forward"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x)
'''


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    settings = EvaluationSettings(least_rounds=3, rounds=3, profile=False)
    with Judge(find_device("cuda"), settings, width=2, shell_of=shell_of) as made:
        yield made


@pytest.fixture(scope="module")
def problem() -> Problem:
    return parse_problem(PROBLEM, name="affine.py", path=Path("affine.py"))


def inline(*changes: tuple[str, str]) -> Kernel:
    source = INLINE
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after)
    return Kernel.from_source(source)


@pytest.mark.slow
def test_what_nvcc_makes_the_same_of_is_judged_once(judge: Judge, problem: Problem) -> None:
    first = judge.evaluate(problem, inline())
    assert first.verdict is Verdict.CORRECT, first.message
    assert first.compiled.binary_hash
    assert first.compiled.identical_to is None
    for words, changes in {
        "another name": (("const float value", "const float result"), ("= value > 0 ? value", "= result > 0 ? result")),
        "unrolled as it was": (("  for (int i", "#pragma unroll\n  for (int i"),),
        "a comment, and const": (("  const long at = ", "  /* where */ long at = "),),
    }.items():
        twin = judge.evaluate(problem, inline(*changes))
        assert twin.compiled.identical_to == first.kernel, words
        assert (twin.verdict, twin.timing.speedup, twin.blocks) == (Verdict.CORRECT, first.timing.speedup, ()), words
        assert not {"trials", "timing"} & set(twin.execution.phases), words


@pytest.mark.slow
def test_other_machine_code_is_judged_itself(judge: Judge, problem: Problem) -> None:
    first = judge.evaluate(problem, inline())
    for words, change in {
        "another block": ("/ 1024, 256>>>", "/ 1024, 128>>>"),  # wrong: half of it stays as it was
        "not unrolled": ("  for (int i", "#pragma unroll 1\n  for (int i"),
        "other flags": ('functions=["forward"]', 'functions=["forward"], extra_cuda_cflags=["-lineinfo"]'),
        "other Python": ("return module.forward(x)", "return module.forward(x.clone())"),
    }.items():
        other = judge.evaluate(problem, inline(change))
        assert other.compiled.identical_to is None, words
        assert (
            other.compiled.binary_hash not in ("", first.compiled.binary_hash) or other.verdict is not Verdict.CORRECT
        ), words
    assert judge.evaluate(problem, inline(("/ 1024, 256>>>", "/ 1024, 128>>>"))).verdict is Verdict.WRONG
