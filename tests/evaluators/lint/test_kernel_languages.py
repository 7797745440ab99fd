"""What the lint sees in kernels that are Python: TileLang, the CuTe DSL, Gluon."""

import pytest

from kbevolve.evaluators.lint import lint

TILELANG = """
import tilelang
import tilelang.language as T
import torch


@tilelang.jit(out_idx=[-1])
def product(n):
    @T.prim_func
    def kernel(a: T.Tensor((n, n), "float32"), c: T.Tensor((n, n), "float32")):
        with T.Kernel(1) as b:
            x = T.alloc_shared((64, 64), "float32")
            y = T.alloc_fragment((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                y[i, j] = a[i, j] * x[i, j] + a[j, i]
            WORK

    return kernel


class ModelNew(torch.nn.Module):
    def forward(self, a):
        return FORWARD
"""
CUTE = """
import cutlass
import cutlass.cute as cute
import torch


@cute.kernel
def kernel(x: cute.Tensor):
    y = x * x
    y.fill(0.0)
    WORK


@cute.jit
def run(x: cute.Tensor):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


class ModelNew(torch.nn.Module):
    def forward(self, a):
        run(a)
        return FORWARD
"""
GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(x, n: gl.constexpr):
    y = gl.load(x) * 2.0
    WORK


class ModelNew(torch.nn.Module):
    def forward(self, a):
        kernel[(1,)](a, 1)
        return FORWARD
"""
OWN = {"tilelang": (TILELANG, "product(64)(a)"), "cute": (CUTE, "a"), "gluon": (GLUON, "a")}


@pytest.mark.parametrize("language", OWN)
def test_arithmetic_in_a_kernel_is_its_own(language: str) -> None:
    text, result = OWN[language]
    found = lint(text.replace("WORK", "pass").replace("FORWARD", result), allow_library="none")
    assert (found.tags, found.refusal) == ((), "")


@pytest.mark.parametrize("language", OWN)
@pytest.mark.parametrize(("forward", "allowed"), [("torch.relu({})", "none"), ("a @ {}", "partial")])
def test_a_librarys_part_is_seen_beside_it(language: str, forward: str, allowed: str) -> None:
    text, result = OWN[language]
    source = text.replace("WORK", "pass").replace("FORWARD", forward.format(result))
    assert lint(source, allow_library=allowed).refusal  # type: ignore[arg-type]
    assert lint(source).refusal == ""


@pytest.mark.parametrize(
    ("text", "work", "tag"),
    [
        (TILELANG, "T.gemm(x, x, y)", "half-types"),  # TF32 for fp32 operands
        (TILELANG, "z = T.alloc_fragment((64, 64), T.bfloat16)", "half-types"),
        (TILELANG, "f = tilelang.PassConfigKey.TL_ENABLE_FAST_MATH", "fast-math"),
        (CUTE, "z = cutlass.Float16(1.0)", "half-types"),
        (CUTE, "op = cute.nvgpu.warp.MmaTF32Op((16, 8, 8))", "half-types"),
        (CUTE, "m = cute.runtime.load_module('other.so')", "foreign-library"),
    ],
)
def test_a_tag_follows_from_a_name(text: str, work: str, tag: str) -> None:
    assert lint(text.replace("WORK", work).replace("FORWARD", "a")).tags == (tag,)


def test_exact_products_of_cute_are_no_half_types() -> None:
    work = "op = cute.nvgpu.MmaUniversalOp(cutlass.Float32)"
    assert lint(CUTE.replace("WORK", work).replace("FORWARD", "a")).tags == ()
