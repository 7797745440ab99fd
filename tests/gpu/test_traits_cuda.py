"""Traits of code that real compilers make for a real GPU, and the niches that follow from them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Trait, Verdict
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.tuning.tunables import with_values
from kbevolve.islands.niches import describe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SETTINGS = EvaluationSettings(
    trials=2, rounds=3, timing_seconds=1, build_seconds=120, import_seconds=30, run_seconds=6, total_seconds=200
)
MATMUL = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024)]


def get_init_inputs():
    return []
"""
GELU = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(2048, 4096)]


def get_init_inputs():
    return []
"""
#: A matrix product with exactly the stages and the precision that it requests.
TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn

PRECISION = "ieee"


@triton.jit
def product(a, b, c, N, K, B: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr):
    rows = (tl.program_id(0) * B + tl.arange(0, B))[:, None]
    columns = (tl.program_id(1) * B + tl.arange(0, B))[None, :]
    depth = tl.arange(0, D)
    total = tl.zeros((B, B), tl.float32)
    for first in range(0, K, D):
        left = tl.load(a + rows * K + (first + depth)[None, :])
        right = tl.load(b + (first + depth)[:, None] * N + columns)
        total += tl.dot(left, right, input_precision=PRECISION)
    tl.store(c + rows * N + columns, total)


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty(M, N, device=A.device)
        product[(M // 64, N // 64)](A, B, C, N, K, B=64, D=32, PRECISION=PRECISION, num_stages=3)
        return C
"""

Evaluate = Callable[[str, str], Evaluation]


def problem(text: str) -> Problem:
    return parse_problem(text, name="tests/traits", path=Path("traits.py"))


def seed(name: str, backend: str, values: Mapping[str, str] | None = None) -> str:
    (path,) = [path for path in seed_files(name, "cuda") if path.stem == backend]
    return with_values(path.read_text(), values or {})


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Evaluate]:
    with Judge(find_device("cuda"), SETTINGS) as judge:

        def judged(text: str, source: str) -> Evaluation:
            found = judge.evaluate(problem(text), Kernel.from_source(source))
            print(found.verdict.name, found.message, found.compiled.traits)
            return found

        yield judged


def shown(found: Evaluation) -> set[Trait]:
    assert found.verdict is Verdict.CORRECT, found.message
    assert found.compiled.traits is not None
    assert list(found.compiled.traits) == [trait for trait in Trait if trait in found.compiled.traits]
    return set(found.compiled.traits)


def test_a_plain_cuda_kernel_has_no_traits_and_a_vectorised_one_has(evaluate: Evaluate) -> None:
    plain = seed("L1/gelu", "cuda")
    assert shown(evaluate(GELU, plain)) == set()
    assert "m1" in describe(Kernel.from_source(plain)), "its templates name float4"
    assert "m0" in describe(Kernel.from_source(plain), ())
    fast = seed("L1/gelu", "cuda", {"VEC": "4", "STREAM_LOAD": "1"})
    assert shown(evaluate(GELU, fast)) == {Trait.VECTOR_ACCESS, Trait.STREAMING}


def test_a_tile_in_shared_memory_is_a_trait(evaluate: Evaluate) -> None:
    assert shown(evaluate(MATMUL, seed("L1/matmul", "cuda"))) == {Trait.SHARED_MEMORY}


def test_tensor_cores_of_cuda_are_a_trait(evaluate: Evaluate) -> None:
    found = shown(evaluate(MATMUL, seed("L1/matmul", "cuda", {"TENSOR_CORES": "1", "VECTOR": "4", "STAGES": "2"})))
    assert {Trait.MATRIX_UNITS, Trait.SHARED_MEMORY, Trait.ASYNC_COPY, Trait.VECTOR_ACCESS} <= found


def test_a_worker_reports_the_traits_of_triton_kernels(evaluate: Evaluate) -> None:
    found = shown(evaluate(MATMUL, TRITON))
    assert {Trait.SHARED_MEMORY, Trait.ASYNC_COPY} <= found
    assert Trait.MATRIX_UNITS not in found, "a dot in exact fp32"
    kernel = Kernel.from_source(TRITON)
    assert "c3" in describe(kernel), "its text contains tl.dot"
    assert "c3" not in describe(kernel, found)
    assert "m3" in describe(kernel, found)


def test_pipeline_stages_that_were_not_compiled_are_no_trait(evaluate: Evaluate) -> None:
    source = TRITON.replace("range(0, K, D)", "tl.range(0, K, D, num_stages=1)")
    found = shown(evaluate(MATMUL, source))
    assert Trait.ASYNC_COPY not in found
    kernel = Kernel.from_source(source)
    assert (describe(kernel)[:2], describe(kernel, found)[:2]) == ("m3", "m2")


@pytest.mark.parametrize("name", ["L1/matmul", "L1/gelu"])
def test_triton_seeds_access_vectors(evaluate: Evaluate, name: str) -> None:
    text = MATMUL if name == "L1/matmul" else GELU
    assert Trait.VECTOR_ACCESS in shown(evaluate(text, seed(name, "triton")))


def test_pytorch_alone_has_no_traits(evaluate: Evaluate) -> None:
    source = (
        "import torch\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n"
        "    def forward(self, x):\n        return torch.nn.functional.gelu(x)\n"
    )
    assert evaluate(GELU, source).compiled.traits is None
