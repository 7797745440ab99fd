"""Niches: what the source claims, and what the compiled code says of it."""

from collections.abc import Collection
from random import Random

import pytest

from kbevolve.archive.records import Backend, Kernel, Trait
from kbevolve.islands.niches import describe

TRITON = """
import triton
import triton.language as tl

@triton.jit
def product(a, b, c):
    tl.store(c, {expression})

product[grid](a, b, c, num_stages={stages})
"""
CUDA = 'SOURCE = r"""\n{body}\nvoid launch() {{ k<<<1, 1>>>(0); }}\n"""\n'
CPP = 'SOURCE = r"""\nextern "C" void f(float* x, int n) {{\n{body};\n}}\n"""\n'
TORCH = "import torch\nclass ModelNew:\n    def forward(self, x):\n        return torch.relu(x.half())\n"

DOT = TRITON.format(expression="tl.dot(tl.load(a), tl.load(b))", stages=3)
ADD = TRITON.format(expression="tl.load(a) + tl.load(b)", stages=1)
TILED = CUDA.format(body="__global__ void k(float4* x) { __shared__ float s[32]; cp.async; __shfl_xor_sync; }")
PLAIN = CUDA.format(body="__global__ void k(float* x) { x[0] = 0; }")
SIMD = CPP.format(body="#pragma omp simd\nfor (int i = 0; i < n; i++) x[i] = 0")
BLOCKED = CPP.format(body="for (int i = 0; i < n; i += BLOCK) __builtin_prefetch(x)")


def levels(source: str, traits: Collection[Trait] | None = None) -> str:
    return describe(Kernel.from_source(source), traits)


def test_sources_are_of_the_backends_that_they_stand_for() -> None:
    kinds = [Kernel.from_source(source).backend for source in (DOT, ADD, TILED, PLAIN, SIMD, BLOCKED, TORCH)]
    assert kinds == [*[Backend.TRITON] * 2, *[Backend.CUDA] * 2, *[Backend.CPP] * 2, Backend.TORCH]


@pytest.mark.parametrize(
    ("source", "claimed"),
    [
        (DOT, "m3c3d0l0"),
        (ADD, "m1c0d0l0"),
        (TILED, "m3c2d1l0"),
        (PLAIN, "m0c0d0l0"),
        (SIMD, "m1c2d0l0"),
        (BLOCKED, "m3c0d0l0"),
        (TORCH, "m0c2d0l3"),
    ],
)
def test_where_no_profile_exists_the_source_is_believed(source: str, claimed: str) -> None:
    assert levels(source) == levels(source, None) == claimed


@pytest.mark.parametrize(
    ("source", "shown", "key"),
    [
        # Stages without an asynchronous copy are none; the tile in shared memory stays.
        (DOT, {Trait.SHARED_MEMORY, Trait.MATRIX_UNITS}, "m2c3d0l0"),
        (DOT, {Trait.SHARED_MEMORY, Trait.ASYNC_COPY, Trait.MATRIX_UNITS}, "m3c3d0l0"),
        # A dot in exact fp32 runs on the plain units.
        (DOT, {Trait.SHARED_MEMORY, Trait.VECTOR_ACCESS}, "m2c0d0l0"),
        (DOT, {Trait.VECTOR_ACCESS}, "m1c0d0l0"),
        (DOT, set(), "m0c0d0l0"),
        # What no word names.
        (ADD, {Trait.VECTOR_ACCESS, Trait.STREAMING}, "m3c0d0l0"),
        (ADD, {Trait.MATRIX_UNITS}, "m0c3d0l0"),
        (ADD, {Trait.PACKED_ARITHMETIC}, "m0c2d0l0"),
        (PLAIN, {Trait.MATRIX_UNITS, Trait.VECTOR_ACCESS}, "m1c3d0l0"),
        # A reduction's shared memory is no tile where the source has none.
        (PLAIN, {Trait.SHARED_MEMORY, Trait.WARP_SHUFFLES}, "m0c2d0l0"),
        (TILED, {Trait.SHARED_MEMORY}, "m2c0d1l0"),
        (TILED, set(), "m0c0d1l0"),
        # Blocks that meet; that they do not meet says nothing.
        (PLAIN, {Trait.ATOMICS}, "m0c0d2l0"),
        (TILED, {Trait.ATOMICS}, "m0c0d2l0"),
        # On a CPU a tile needs no instruction.
        (SIMD, set(), "m0c0d0l0"),
        (SIMD, {Trait.VECTOR_ACCESS, Trait.PACKED_ARITHMETIC}, "m1c2d0l0"),
        (BLOCKED, set(), "m2c0d0l0"),
        (BLOCKED, {Trait.ASYNC_COPY}, "m3c0d0l0"),
        # What a library computes with is not the kernel's doing.
        (TORCH, set(), "m0c2d0l3"),
        (TORCH, set(Trait), "m0c2d0l3"),
    ],
)
def test_compiled_code_refutes_and_establishes(source: str, shown: set[Trait], key: str) -> None:
    assert levels(source, shown) == key


def test_the_order_of_traits_does_not_matter() -> None:
    rng = Random(0)
    for _ in range(20):
        shown = rng.sample(list(Trait), 4)
        assert len({levels(source, rng.sample(shown, 4)) for source in [DOT] for _ in range(4)}) == 1
