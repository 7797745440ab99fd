"""Problems and kernels whose true relation is known, for measuring the judge with."""

from pathlib import Path

from kbevolve.archive.records import Kernel
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.seeds import seed_files

#: A product whose inputs are drawn by {draw}.
_MATMUL = '''"""Matrix product."""
import torch
from torch import nn

N = {size}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.{draw}(N, N), torch.{draw}(N, N)]


def get_init_inputs():
    return []
'''

#: The same product, then a wait of {nanoseconds} on the device, in one launch: a difference whose size is known.
_DELAYED = '''
import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void delay(float* out, long long nanoseconds) {{
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}}
"""
DELAY = torch.cuda._compile_kernel(SOURCE, "delay")
NANOSECONDS = {nanoseconds}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        C = A @ B
        DELAY((1, 1, 1), (1, 1, 1), (C, NANOSECONDS))
        return C
'''

_TORCH = """
import torch
from torch import nn

COPY = {number}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return {expression}
"""

_TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product(a, b, c, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, N, BK):
        left = tl.load(a + rows[:, None] * N + (k + steps)[None, :])
        right = tl.load(b + (k + steps)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        N = A.shape[0]
        C = torch.empty_like(A)
        product[(N // 128, N // 128)](A, B, C, N, 128, 128, 32, "{precision}", num_warps=8, num_stages=3)
        return C
"""


def matmul(size: int, *, draw: str = "randn") -> Problem:
    """A (N, N) @ B (N, N) in fp32, with inputs drawn by ``torch.rand`` or ``torch.randn``."""
    return parse_problem(_MATMUL.format(size=size, draw=draw), name=f"matmul-{size}-{draw}", path=Path("matmul.py"))


def copy_of_reference(number: int) -> Kernel:
    """The reference of `matmul`, under another name for each number."""
    return Kernel.from_source(_TORCH.format(number=number, expression="A @ B"))


def delayed(nanoseconds: int) -> Kernel:
    """`matmul` and so many nanoseconds more."""
    return Kernel.from_source(_DELAYED.format(nanoseconds=nanoseconds))


def products() -> dict[str, tuple[Kernel, str]]:
    """Kernels for `matmul` by name, with the precision class that each belongs to."""
    half = "(A.half() @ B.half()).float()"
    return {
        "cuBLAS fp32": (Kernel.from_source(_TORCH.format(number=0, expression="A @ B")), "fp32"),
        "Triton fp32 (ieee)": (Kernel.from_source(_TRITON.format(precision="ieee")), "fp32"),
        "Triton tf32x3": (Kernel.from_source(_TRITON.format(precision="tf32x3")), "fp32"),
        "Triton TF32": (Kernel.from_source(_TRITON.format(precision="tf32")), "tf32"),
        "cuBLAS fp16": (Kernel.from_source(_TORCH.format(number=0, expression=half)), "half"),
        "cuBLAS bf16": (
            Kernel.from_source(_TORCH.format(number=0, expression=half.replace("half", "bfloat16"))),
            "half",
        ),
    }


def seed_of(name: str, device_type: str) -> tuple[Problem, Kernel]:
    """A built-in problem and its Triton or C++ seed."""
    stem = "triton" if device_type == "cuda" else "cpp"
    path = next(path for path in seed_files(name, device_type) if path.stem == stem)
    return find_problem(name), Kernel.from_source(path.read_text())
