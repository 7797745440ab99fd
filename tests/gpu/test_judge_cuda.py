"""Kernels of every kind through a real judge and real workers on a GPU."""

import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

PROBLEM = """
import torch
from torch import nn

ROWS, COLUMNS = 4096, 8192


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return torch.relu(x + self.bias)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
"""

TORCH = """
import os, time
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        {body}
"""

TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def fused(x, bias, y, count, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, mask=inside) + tl.load(bias + at % columns, mask=inside)
    tl.store(y + at, tl.maximum(value, 0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        fused[(triton.cdiv(x.numel(), 1024),)](x, self.bias, y, x.numel(), x.shape[1], BLOCK=1024)
        return y
"""

CUDA = r'''
import ctypes
import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
__global__ void fused(const float* x, const float* bias, float* y, long count, long columns) {
  long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = fmaxf(x[at] + bias[at % columns], 0.0f);
}
extern "C" void launch(const float* x, const float* bias, float* y, long count, long columns, void* stream) {
  fused<<<(count + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, bias, y, count, columns);
}
"""
with open("fused.cu", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("fused", ["fused.cu"], is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.bias, y)]
        sizes = [ctypes.c_long(x.numel()), ctypes.c_long(x.shape[1])]
        library.launch(*pointers, *sizes, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return y
'''

SETTINGS = EvaluationSettings(
    trials=4, rounds=5, timing_seconds=2, build_seconds=90, import_seconds=30, run_seconds=6, total_seconds=150
)

Evaluate = Callable[[str], Evaluation]


def problem() -> Problem:
    return parse_problem(PROBLEM, name="tests/fused", path=Path("fused.py"))


def candidate(body: str) -> str:
    return TORCH.format(body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip())


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Evaluate]:
    with Judge(find_device("cuda"), SETTINGS) as judge:

        def judged(source: str) -> Evaluation:
            found = judge.evaluate(problem(), Kernel.from_source(source))
            print(found.verdict.name, found.message, {k: round(v, 2) for k, v in found.execution.phases.items()})
            return found

        yield judged


@pytest.mark.parametrize("source", [candidate("return torch.relu(x + self.bias)"), TRITON, CUDA])
def test_honest_kernels_are_correct_and_timed(evaluate: Evaluate, source: str) -> None:
    found = evaluate(source)
    assert found.verdict is Verdict.CORRECT, found.message
    assert found.accuracy.precision_class in ("fp32", "fp64")
    assert found.accuracy.allclose is True
    assert found.timing.speedup is not None
    # One pass over 134 MB instead of eager's two: never much slower, at most about twice as fast.
    assert 0.9 < found.timing.speedup < 3
    assert found.device == find_device("cuda").fingerprint


def test_the_best_kernel_is_profiled_at_no_great_cost() -> None:
    with Judge(find_device("cuda"), SETTINGS) as judge:  # of its own: in another one it may not be the best
        found = judge.evaluate(problem(), Kernel.from_source(TRITON))
    assert found.profile is not None
    assert [launch.name for launch in found.profile.launches] == ["fused"]
    assert found.profile.launches[0].microseconds == pytest.approx(1e3 * (found.timing.time_ms or 0), rel=0.2)
    # Not the seconds in which torch's own profiler imports a compiler.
    assert found.execution.phases["profile"] < 2


def test_the_same_code_on_both_sides_is_a_tie(evaluate: Evaluate) -> None:
    found = evaluate(candidate("y = torch.relu(x + self.bias)\nreturn y"))
    assert found.timing.speedup == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return torch.relu(x - self.bias)", "wrong values"),
        ("return torch.relu(x + self.bias).cpu()", "device cpu"),
        ("return torch.relu(x.half() + self.bias.half()).float()", "not accurate enough"),
        ("return torch.empty_like(x)", "wrong values"),
        (
            """
            if not hasattr(self, 'kept'):
                self.kept = torch.relu(x + self.bias)
            return self.kept
            """,
            "wrong values",
        ),
        ("return torch.relu(x + self.bias) * (1 - 3e-4)", "Mostly a bias toward zero"),
        (
            "y = torch.relu(x + self.bias)\ny[..., -100:] = -1\nreturn y",
            "by the same values: an index, a bound or the formula, not a race.",
        ),
        (
            """
            self.n = getattr(self, 'n', 0) + 1
            y = torch.relu(x + self.bias)
            y[:, 9 + self.n % 2::128] += 1
            return y
            """,
            "made other elements wrong (0 % are wrong in both): a race",
        ),
    ],
)
def test_wrong_answers_are_wrong(evaluate: Evaluate, body: str, words: str) -> None:
    found = evaluate(candidate(body))
    assert found.verdict is Verdict.WRONG, found.message
    assert words in found.message


def test_a_compiler_error_shows_its_line(evaluate: Evaluate) -> None:
    found = evaluate(CUDA.replace("fmaxf(x[at]", "fmaxf(xx[at]"))
    assert found.verdict is Verdict.BUILD_FAILED
    assert '"xx" is undefined' in found.message
    assert "y[at] = fmaxf(xx[at]" in found.message


def test_a_triton_compiler_error_is_a_build_failure(evaluate: Evaluate) -> None:
    found = evaluate(TRITON.replace("tl.maximum(value, 0.0)", "tl.maximum(nothing, 0.0)"))
    assert found.verdict is Verdict.BUILD_FAILED, found.message
    assert "nothing" in found.message


def test_an_illegal_access_leaves_nothing_behind(evaluate: Evaluate) -> None:
    found = evaluate(CUDA.replace("y[at] =", "y[at + (1L << 40)] ="))
    assert found.verdict is Verdict.CRASHED
    assert "illegal memory access" in found.message
    assert evaluate(CUDA).verdict is Verdict.CORRECT


def test_a_kernel_that_never_ends_is_stopped(evaluate: Evaluate) -> None:
    start = time.monotonic()
    found = evaluate(CUDA.replace("if (at < count)", "while (count) __nanosleep(100); if (at < count)"))
    assert found.verdict is Verdict.TIMED_OUT, found.message
    assert time.monotonic() - start < 60
    assert evaluate(CUDA).verdict is Verdict.CORRECT


def test_too_much_memory_is_a_crash(evaluate: Evaluate) -> None:
    found = evaluate(candidate("return torch.empty(1 << 50, device='cuda')"))
    assert found.verdict is Verdict.CRASHED
    assert "memory" in found.message


def test_times_agree_with_triton_do_bench(evaluate: Evaluate) -> None:
    testing = pytest.importorskip("triton.testing")
    found = evaluate(CUDA)
    x, bias = torch.rand(4096, 8192, device="cuda"), torch.randn(8192, device="cuda")
    eager = testing.do_bench(lambda: torch.relu(x + bias), warmup=50, rep=200, return_mode="median")
    assert found.timing.reference_ms == pytest.approx(eager, rel=0.05)
