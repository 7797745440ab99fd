# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:2/76 (text 88e932ace4f16e04)
# kernel      93c2f8e8981004fb, triton
# run         76-20261127-181300-7062, seed 0, generation 0
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 2.5e-05 against the fp64 truth (the reference's own: 4.1e-06)
# speedup     5.350 times PyTorch eager, 95 % interval 5.343 to 5.357
# times       0.5105 ms; eager 2.733 ms in the same rounds
# KernelBench 5.10× over eager, 535 µs, eager 2.73 ms, by its way of timing (cuda_event), which includes slow launches
# launches    2 a call, for which the host needs 160 µs, eager 84.8 µs
# measured    2026-11-27 22:09 UTC
# again with  kbevolve evaluate level_2_problem_76_sample_0_kernel.py --problem kernelbench:2/76 --device cuda
#
# lineage, newest first:
#   93c2f8e8981004fb  g0    seed       5.383x  given: level_2_problem_76_sample_0_kernel.py
# ---- end of provenance ----

"""relu(x w^T + bias) in fp32 accuracy: hi * hi in fp16, and hi * lo + lo * hi in fp8."""

import functools

import torch
import torch.nn as nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


class PlannedLaunch:
    """A launch of one kernel with the same integers, constants and alignments each time: Triton looks at them once.

    Triton's own way looks at each argument each time, which takes the host longer than a small kernel takes the device.
    """

    def __init__(self, kernel, programs, numbers, **constants):
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*programs, 1, 1)[:3], numbers, constants
        self.compiled, self.rest = None, ()

    def __call__(self, *pointers):
        if self.compiled is not None:
            self.compiled[self.grid](*pointers, *self.rest)
            return
        self.compiled = self.kernel[self.grid](*pointers, *self.numbers, **self.constants)
        names = self.kernel.arg_names[len(pointers) + len(self.numbers) :]
        self.rest = (*self.numbers, *(self.constants[name] for name in names))


def place_of(*tensors):
    """Their device, and which of them begin at a multiple of 16 bytes."""
    return tensors[0].device, *(x is not None and x.data_ptr() % 16 == 0 for x in tensors)


SPLIT_N = 128  # tune: 64, 128
SPLIT_K = 64  # tune: 32, 64
SPLIT_STAGES = 2  # tune: 2, 3, 4
SPLIT_GROUP = 8  # tune: 1, 4, 8, 16
# tune if: (128 + 2 * SPLIT_N) * SPLIT_K * SPLIT_STAGES * 4 <= 229376
SPLIT_VEC = 8  # tune: 4, 8, 16
SPLIT_WARPS = 8  # tune: 4, 8, 16


@gluon.jit
def split_row(source, halves, small, inverse, HIGH: gl.constexpr, LOW: gl.constexpr, K: gl.constexpr,
              BK: gl.constexpr, VEC: gl.constexpr, WARPS: gl.constexpr):
    # A row times the power of two that brings its largest finite magnitude to [2^13, 2^14): hi in fp16, and hi / 64 and
    # 64 lo in fp8, which have the same range. What is not finite is in hi alone: times hi and times lo it could be
    # infinite with both signs.
    layout: gl.constexpr = gl.BlockedLayout([VEC], [32], [WARPS], [0])
    k = gl.arange(0, K, layout=layout)
    v = gl.load(source + k)
    bits = v.to(gl.int32, bitcast=True) & 0x7FFFFFFF
    finite = bits < 0x7F800000
    top = gl.max(gl.where(finite, bits, 0), axis=0)
    power = gl.minimum(267 - (top >> 23), 253)
    s = v * (power << 23).to(gl.float32, bitcast=True)
    hi = s.to(gl.float16)
    gl.store(halves + k, hi)
    large = hi.to(gl.float32)
    kept = gl.where(finite, large, 0.0)
    rest = gl.where(finite, s - large, 0.0)
    at = k // BK * BK + k
    gl.store(small + (at + HIGH), (kept * 0.015625).to(gl.float8e4nv))
    gl.store(small + (at + LOW), (rest * 64.0).to(gl.float8e4nv))
    gl.store(inverse, ((254 - power) << 23).to(gl.float32, bitcast=True))


@gluon.jit
def split_rows(w, x, halves, small, inverse, N: gl.constexpr, K: gl.constexpr, BK: gl.constexpr, VEC: gl.constexpr,
               WARPS: gl.constexpr):
    # One row a program: those of w, the ones that the product reads first last, and then those of x. In fp8 each chunk
    # of BK columns is hi, lo of w, and lo, hi of x.
    pid = gl.program_id(0)
    if pid < N:
        row = N - 1 - pid
        split_row(w + row * K, halves + row * K, small + row * (2 * K), inverse + row, 0, BK, K, BK, VEC, WARPS)
    else:
        split_row(x + (pid - N) * K, halves + pid * K, small + pid * (2 * K), inverse + pid, BK, 0, K, BK, VEC, WARPS)


@gluon.jit
def split_ring(STAGES: gl.constexpr):
    # Barriers of a ring of slots: one full, when its tiles have come; one empty, when both warpgroups have read them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    return full, empty


@gluon.jit
def split_place(tile, M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, BN: gl.constexpr):
    # The first row and column of a tile, in groups of rows of tiles.
    group = tile // (GROUP * (N // (2 * BN)))
    rows = gl.minimum(M // 128 - group * GROUP, GROUP)
    place = tile % (GROUP * (N // (2 * BN)))
    return (group * GROUP + place % rows) * 128, place // rows * (2 * BN)


@gluon.jit
def split_load(a_desc, b_desc, a_slots, b_slots, full, empty, slot, phase, m0, n0, k, BN: gl.constexpr,
               BYTES: gl.constexpr):
    # Two tiles of 64 rows of a, and two of BN rows of b, into a slot when it is free.
    mbarrier.wait(empty.index(slot), phase)
    bar = full.index(slot)
    mbarrier.expect(bar, BYTES)
    for half in gl.static_range(2):
        tma.async_copy_global_to_shared(a_desc, [m0 + half * 64, k], bar, a_slots.index(2 * slot + half))
        tma.async_copy_global_to_shared(b_desc, [n0 + half * BN, k], bar, b_slots.index(2 * slot + half))


@gluon.jit
def split_loads(a8_desc, a16_desc, b8_desc, b16_desc, a8_slots, a16_slots, b8_slots, b16_slots, full8, empty8, full16,
                empty16, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
                GROUP: gl.constexpr, STAGES: gl.constexpr):
    # One warp fills both rings.
    step = 0
    for tile in range(gl.program_id(0), (M // 128) * (N // (2 * BN)), gl.num_programs(0)):
        m0, n0 = split_place(tile, M, N, GROUP, BN)
        for k in range(0, K, BK):
            slot = step % STAGES
            phase = ((step // STAGES) & 1) ^ 1
            split_load(a8_desc, b8_desc, a8_slots, b8_slots, full8, empty8, slot, phase, m0, n0, 2 * k, BN,
                       (128 + 2 * BN) * BK * 2)
            split_load(a16_desc, b16_desc, a16_slots, b16_slots, full16, empty16, slot, phase, m0, n0, k, BN,
                       (128 + 2 * BN) * BK * 2)
            step += 1


@gluon.jit
def split_small(x8, w8, BN: gl.constexpr, layout8: gl.constexpr, layout16: gl.constexpr):
    # lo * hi + hi * lo of a chunk, in a new accumulator. The registers of both layouts are the same.
    zero = gl.zeros([64, BN], gl.float32, layout8)
    p = warpgroup_mma(x8, w8, zero, use_acc=False, is_async=True)
    p = warpgroup_mma_wait(0, deps=[p])
    return gl.convert_layout(p, layout16)


@gluon.jit
def split_large(acc, p, x16, w16):
    # acc plus a chunk's products. Tensor cores truncate, so acc is added to outside of them.
    p = warpgroup_mma(x16, w16, p, is_async=True)
    return acc + warpgroup_mma_wait(0, deps=[p])


@gluon.jit
def split_write(acc, inverse_ptr, bias_ptr, out_ptr, m0, n0, N: gl.constexpr, BN: gl.constexpr, layout: gl.constexpr):
    m = m0 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    value = acc * gl.load(inverse_ptr + n)[None, :]
    value = value * gl.load(inverse_ptr + N + m)[:, None]
    value = value + gl.load(bias_ptr + n)[None, :]
    value = gl.where(value < 0.0, 0.0, value)
    gl.store(out_ptr + (m[:, None] * N + n[None, :]), value)


@gluon.jit
def split_multiply(WG: gl.constexpr, a8_slots, a16_slots, b8_slots, b16_slots, full8, empty8, full16, empty16,
                   inverse_ptr, bias_ptr, out_ptr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, BN: gl.constexpr,
                   BK: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr):
    # One of two warpgroups: 64 rows of a tile, and two halves of BN columns. While one adds, the other multiplies.
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 32])
    layout16: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    step = 0
    for tile in range(gl.program_id(0), (M // 128) * (N // (2 * BN)), gl.num_programs(0)):
        m0, n0 = split_place(tile, M, N, GROUP, BN)
        acc0 = gl.zeros([64, BN], gl.float32, layout16)
        acc1 = gl.zeros([64, BN], gl.float32, layout16)
        for _k in range(0, K, BK):
            slot = step % STAGES
            phase = (step // STAGES) & 1
            mbarrier.wait(full8.index(slot), phase)
            x8 = a8_slots.index(2 * slot + WG)
            p0 = split_small(x8, b8_slots.index(2 * slot).permute((1, 0)), BN, layout8, layout16)
            mbarrier.wait(full16.index(slot), phase)
            x16 = a16_slots.index(2 * slot + WG)
            acc0 = split_large(acc0, p0, x16, b16_slots.index(2 * slot).permute((1, 0)))
            p1 = split_small(x8, b8_slots.index(2 * slot + 1).permute((1, 0)), BN, layout8, layout16)
            mbarrier.arrive(empty8.index(slot), count=1)
            acc1 = split_large(acc1, p1, x16, b16_slots.index(2 * slot + 1).permute((1, 0)))
            mbarrier.arrive(empty16.index(slot), count=1)
            step += 1
        split_write(acc0, inverse_ptr, bias_ptr, out_ptr, m0 + WG * 64, n0, N, BN, layout16)
        split_write(acc1, inverse_ptr, bias_ptr, out_ptr, m0 + WG * 64, n0 + BN, N, BN, layout16)


@gluon.jit
def split_gemm(a8_desc, a16_desc, b8_desc, b16_desc, inverse_ptr, bias_ptr, out_ptr, M: gl.constexpr, N: gl.constexpr,
               K: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr):
    # The product and what follows it, by one program for each multiprocessor.
    a8 = gl.allocate_shared_memory(gl.float8e4nv, [2 * STAGES, 64, 2 * BK], a8_desc.layout)
    a16 = gl.allocate_shared_memory(gl.float16, [2 * STAGES, 64, BK], a16_desc.layout)
    b8 = gl.allocate_shared_memory(gl.float8e4nv, [2 * STAGES, BN, 2 * BK], b8_desc.layout)
    b16 = gl.allocate_shared_memory(gl.float16, [2 * STAGES, BN, BK], b16_desc.layout)
    full8, empty8 = split_ring(STAGES)
    full16, empty16 = split_ring(STAGES)
    fence_async_shared()
    gl.warp_specialize([
        (split_multiply, (0, a8, a16, b8, b16, full8, empty8, full16, empty16, inverse_ptr, bias_ptr, out_ptr, M, N, K,
                          BN, BK, GROUP, STAGES)),
        (split_multiply, (1, a8, a16, b8, b16, full8, empty8, full16, empty16, inverse_ptr, bias_ptr, out_ptr, M, N, K,
                          BN, BK, GROUP, STAGES)),
        (split_loads, (a8_desc, a16_desc, b8_desc, b16_desc, a8, a16, b8, b16, full8, empty8, full16, empty16, M, N, K,
                       BN, BK, GROUP, STAGES)),
    ], [4, 1], [240, 24])


class SplitLinear:
    """What place and sizes decide of relu(x w^T + bias) for x [M, K] and w [N, K]."""

    def __init__(self, place, M, N, K):
        if M % 128 or N % (2 * SPLIT_N) or K < 256 or K > 16384 or K & (K - 1) or not M or not N:
            raise RuntimeError("shape not supported")
        if (M + N) * 2 * K >= 2**31 or M * N >= 2**31:
            raise RuntimeError("too large")
        self.M, self.N, self.K = M, N, K
        self.split = PlannedLaunch(
            split_rows, (N + M,), (), N=N, K=K, BK=SPLIT_K, VEC=SPLIT_VEC, WARPS=SPLIT_WARPS, num_warps=SPLIT_WARPS)
        processors = torch.cuda.get_device_properties(place[0]).multi_processor_count
        self.gemm = PlannedLaunch(
            split_gemm, (min(M // 128 * (N // (2 * SPLIT_N)), processors),), (), M=M, N=N, K=K, BN=SPLIT_N, BK=SPLIT_K,
            GROUP=SPLIT_GROUP, STAGES=SPLIT_STAGES, num_warps=4)
        self.a8, self.a16, self.b8, self.b16 = (
            (block, gl.NVMMASharedLayout.get_default_for(block, dtype))
            for block, dtype in (([64, 2 * SPLIT_K], gl.float8e4nv), ([64, SPLIT_K], gl.float16),
                                 ([SPLIT_N, 2 * SPLIT_K], gl.float8e4nv), ([SPLIT_N, SPLIT_K], gl.float16)))

    def __call__(self, x, w, bias):
        M, N, K = self.M, self.N, self.K
        halves = torch.empty((N + M, K), device=x.device, dtype=torch.float16)
        small = torch.empty((N + M, 2 * K), device=x.device, dtype=torch.float8_e4m3fn)
        inverse = torch.empty((N + M,), device=x.device, dtype=torch.float32)
        self.split(w, x, halves, small, inverse)
        out = torch.empty((M, N), device=x.device, dtype=torch.float32)
        self.gemm(
            TensorDescriptor(small[N:], (M, 2 * K), (2 * K, 1), *self.a8),
            TensorDescriptor(halves[N:], (M, K), (K, 1), *self.a16),
            TensorDescriptor(small[:N], (N, 2 * K), (2 * K, 1), *self.b8),
            TensorDescriptor(halves[:N], (N, K), (K, 1), *self.b16),
            inverse, bias, out)
        return out


split_linear_of = functools.lru_cache(maxsize=None)(SplitLinear)


def linear_relu(x, w, bias):
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != w.shape[1] or bias.shape != (w.shape[0],):
        raise RuntimeError("shape not supported")
    if not x.is_cuda or any(t.device != x.device or t.dtype != torch.float32 for t in (x, w, bias)):
        raise RuntimeError("fp32 tensors on one CUDA device expected")
    x, w, bias = x.contiguous(), w.contiguous(), bias.contiguous()
    with torch.cuda.device(x.device):
        return split_linear_of(place_of(x, w, bias), x.shape[0], w.shape[0], x.shape[1])(x, w, bias)


class ModelNew(nn.Module):
    """
    Simple model that performs a matrix multiplication, adds a bias term, and applies ReLU.
    """
    def __init__(self, in_features, out_features, bias_shape):
        super(ModelNew, self).__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    @torch.no_grad()
    def forward(self, x):
        return linear_relu(x, self.gemm.weight, self.bias)
