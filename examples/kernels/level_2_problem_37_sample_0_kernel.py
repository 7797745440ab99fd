# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:2/37 (text fe2e8dc5418f1549)
# kernel      d1a1bb1cf1180782, triton
# run         37-20261127-181352-4f9c, seed 0, generation 0
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 2.2e-05 against the fp64 truth (the reference's own: 1.8e-06)
# speedup     8.652 times PyTorch eager, 95 % interval 8.635 to 8.669
# times       0.9478 ms; eager 8.202 ms in the same rounds
# KernelBench 8.28× over eager, 999 µs, eager 8.27 ms, by its way of timing (cuda_event), which includes slow launches
# launches    2 a call, for which the host needs 97.7 µs, eager 256 µs
# measured    2026-11-27 22:09 UTC
# again with  kbevolve evaluate level_2_problem_37_sample_0_kernel.py --problem kernelbench:2/37 --device cuda
#
# lineage, newest first:
#   d1a1bb1cf1180782  g0    seed       8.714x  given: level_2_problem_37_sample_0_kernel.py
# ---- end of provenance ----

"""Linear, Swish, bias and GroupNorm: one fp16 product with two fp8 corrections, finished in registers."""

import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl
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

WARPGROUPS = 2  # tune: 2, 3
STAGES = 4  # tune: 3, 4
GROUP = 8  # tune: 4, 8, 16
SPLIT_WARPS = 4  # tune: 2, 4, 8
# tune if: (64 * WARPGROUPS + 256) * 128 * STAGES <= 229376


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


# Rows times their power of two s, as bytes: the products x w are xh wh in fp16, and xl wh + xh wl, which are 2^-12 of
# it, in e4m3: (2^6 xl) (2^-6 wh) + (2^-6 xh) (2^6 wl). All have the same scale.


@gluon.jit
def split_part(pid, src, to8, to16, inverse, LOW: gl.constexpr, K: gl.constexpr, WARPS: gl.constexpr):
    # A row for each warp, kept in registers. The largest magnitude comes to [2^13, 2^14).
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    row = pid * WARPS + gl.arange(0, WARPS, layout=gl.SliceLayout(1, layout))
    k = gl.arange(0, K, layout=gl.SliceLayout(0, layout))
    v = gl.load(src + (row * K)[:, None] + k[None, :])
    top = gl.max(v.to(gl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    e = gl.minimum(267 - (top >> 23), 253)
    s = v * (e << 23).to(gl.float32, bitcast=True)[:, None]
    high = s.to(gl.float16)
    low = (s - high.to(gl.float32)) * 64.0
    at8 = to8 + (row * (4 * K))[:, None] + k[None, :]
    gl.store(at8 + LOW, low.to(tl.float8e4nv))
    gl.store(at8 + (K - LOW), (s * 0.015625).to(tl.float8e4nv))
    gl.store(to16 + (row * (2 * K) + K)[:, None] + k[None, :], high)
    # What is not finite makes all results of its row (for weights: its column) NaN, as it does in the reference.
    bits = gl.where(top < 0x7F800000, (254 - e) << 23, 0x7FC00000)
    gl.store(inverse + row, bits.to(gl.float32, bitcast=True))


@gluon.jit
def split_both(x, w, x8, x16, w8, w16, x_inv, w_inv, programs, K: gl.constexpr, WARPS: gl.constexpr):
    # One launch for both; the first `programs` have x.
    pid = gl.program_id(0)
    if pid < programs:
        split_part(pid, x, x8, x16, x_inv, 0, K, WARPS)
    else:
        split_part(pid - programs, w, w8, w16, w_inv, K, K, WARPS)


@gluon.jit
def tile_place(tile, tiles_m, N: gl.constexpr, WGS: gl.constexpr, GROUP: gl.constexpr):
    # The first row and the first column of a tile, in groups of rows of tiles.
    group = tile // (GROUP * (N // 256))
    rows = gl.minimum(tiles_m - group * GROUP, GROUP)
    place = tile % (GROUP * (N // 256))
    return (group * GROUP + place % rows) * (64 * WGS), place // rows * 256


@gluon.jit
def load_tiles(x_desc, w_desc, x16, w16, full, empty, tiles, tiles_m, chunks, N: gl.constexpr, WGS: gl.constexpr,
               GROUP: gl.constexpr, STAGES: gl.constexpr):
    # One warp fills the ring with chunks of 128 bytes of each row, whatever they hold.
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m0, n0 = tile_place(tile, tiles_m, N, WGS, GROUP)
        for i in range(0, 2 * chunks):
            slot = step % STAGES
            mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
            bar = full.index(slot)
            mbarrier.expect(bar, (WGS * 64 + 256) * 128)
            for part in gl.static_range(WGS):
                tma.async_copy_global_to_shared(x_desc, [m0 + part * 64, i * 64], bar, x16.index(WGS * slot + part))
            tma.async_copy_global_to_shared(w_desc, [n0, i * 64], bar, w16.index(slot))
            step += 1


@gluon.jit
def swish(y):
    # y / (1 + 2^(-y log2 e))
    return gl.inline_asm_elementwise(
        """
        {
            .reg .f32 t;
            mul.f32 t, $1, 0fBFB8AA3B;
            ex2.approx.ftz.f32 t, t;
            add.f32 t, t, 0f3F800000;
            rcp.approx.ftz.f32 t, t;
            mul.f32 $0, $1, t;
        }
        """,
        "=f,f",
        [y],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def inverse_root(v):
    return gl.inline_asm_elementwise(
        "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [v], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def column_halves(x):
    low, high = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute(0, 2, 1).split()
    return low, high


@gluon.jit
def before_norm(w_inv, linear, bias, n0, part: gl.constexpr):
    # For a group's columns: one over the power of two, and the two biases.
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, part))
    return gl.load(w_inv + n0 + column), gl.load(linear + n0 + column), gl.load(bias + n0 + column)


@gluon.jit
def after_norm(gamma, beta, n0, part: gl.constexpr):
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, part))
    return gl.load(gamma + n0 + column), gl.load(beta + n0 + column)


@gluon.jit
def activated(acc, row_inv, scale, shift, add, part: gl.constexpr):
    # The layout of a quarter of an accumulator is this one already: nothing moves.
    y = gl.convert_layout(acc, part) * scale[None, :] * row_inv[:, None] + shift[None, :]
    return swish(y) + add[None, :]


@gluon.jit
def normalised(v, factor, offset, eps):
    mean = gl.sum(v, axis=1) * 0.015625
    d = v - mean[:, None]
    root = inverse_root(gl.sum(d * d, axis=1) * 0.015625 + eps)
    return d * (root[:, None] * factor[None, :]) + offset[None, :]


@gluon.jit
def put(out, v, m, n0, M, N: gl.constexpr, part: gl.constexpr, MASKED: gl.constexpr):
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, part))
    at = (out + n0) + (m * N)[:, None] + column[None, :]
    if MASKED:
        gl.store(at, v, mask=(m < M)[:, None] & (column < 64)[None, :], cache_modifier=".cs")
    else:
        gl.store(at, v, cache_modifier=".cs")


@gluon.jit
def multiply(WG: gl.constexpr, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles,
             tiles_m, M, chunks, eps, N: gl.constexpr, WGS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
             MASKED: gl.constexpr):
    # One warpgroup: 64 rows and 256 columns, four whole groups of the normalisation.
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 32])
    layout16: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    part: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m0, n0 = tile_place(tile, tiles_m, N, WGS, GROUP)

        # The corrections: tensor cores keep 14 bits of such sums, and they need fewer.
        small = gl.zeros([64, 256], gl.float32, layout8)
        for i in range(0, chunks):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), (step // STAGES) & 1)
            small = warpgroup_mma(x8.index(WGS * slot + WG), w8.index(slot).permute((1, 0)), small, is_async=True)
            # The chunk before this one is done: free its slot.
            small = warpgroup_mma_wait(1, deps=[small])
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=i > 0)
            step += 1
        small = warpgroup_mma_wait(0, deps=[small])
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)

        # The products on top of them.
        acc = gl.convert_layout(small, layout16)
        for i in range(0, chunks):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), (step // STAGES) & 1)
            acc = warpgroup_mma(x16.index(WGS * slot + WG), w16.index(slot).permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=i > 0)
            step += 1

        # What the first group needs comes while the last products are computed, that of the next one during the sums.
        m = m0 + WG * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, part))
        row_inv = gl.load(x_inv + m, mask=m < M, other=0.0)
        scale, shift, add = before_norm(w_inv, linear, bias, n0, part)
        factor, offset = after_norm(gamma, beta, n0, part)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
        left, right = column_halves(acc)
        acc0, acc1 = column_halves(left)
        acc2, acc3 = column_halves(right)

        v = activated(acc0, row_inv, scale, shift, add, part)
        scale, shift, add = before_norm(w_inv, linear, bias, n0 + 64, part)
        v = normalised(v, factor, offset, eps)
        factor, offset = after_norm(gamma, beta, n0 + 64, part)
        put(out, v, m, n0, M, N, part, MASKED)

        v = activated(acc1, row_inv, scale, shift, add, part)
        scale, shift, add = before_norm(w_inv, linear, bias, n0 + 128, part)
        v = normalised(v, factor, offset, eps)
        factor, offset = after_norm(gamma, beta, n0 + 128, part)
        put(out, v, m, n0 + 64, M, N, part, MASKED)

        v = activated(acc2, row_inv, scale, shift, add, part)
        scale, shift, add = before_norm(w_inv, linear, bias, n0 + 192, part)
        v = normalised(v, factor, offset, eps)
        factor, offset = after_norm(gamma, beta, n0 + 192, part)
        put(out, v, m, n0 + 128, M, N, part, MASKED)

        v = activated(acc3, row_inv, scale, shift, add, part)
        v = normalised(v, factor, offset, eps)
        put(out, v, m, n0 + 192, M, N, part, MASKED)


@gluon.jit
def fused_product(x_desc, w_desc, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m, M, chunks, eps,
                  N: gl.constexpr, X8: gl.constexpr, W8: gl.constexpr, WGS: gl.constexpr, GROUP: gl.constexpr,
                  STAGES: gl.constexpr, MASKED: gl.constexpr):
    # Slots of 128 bytes of each row: 64 numbers of fp16, or 128 of e4m3.
    x16 = gl.allocate_shared_memory(gl.float16, [WGS * STAGES, 64, 64], x_desc.layout)
    w16 = gl.allocate_shared_memory(gl.float16, [STAGES, 256, 64], w_desc.layout)
    x8 = x16._reinterpret(tl.float8e4nv, [WGS * STAGES, 64, 128], X8)
    w8 = w16._reinterpret(tl.float8e4nv, [STAGES, 256, 128], W8)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=WGS)
    fence_async_shared()
    if WGS == 2:
        gl.warp_specialize([
            (multiply, (0, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m,
                        M, chunks, eps, N, WGS, GROUP, STAGES, MASKED)),
            (multiply, (1, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m,
                        M, chunks, eps, N, WGS, GROUP, STAGES, MASKED)),
            (load_tiles, (x_desc, w_desc, x16, w16, full, empty, tiles, tiles_m, chunks, N, WGS, GROUP, STAGES)),
        ], [4, 1], [240, 24])
    else:
        gl.warp_specialize([
            (multiply, (0, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m,
                        M, chunks, eps, N, WGS, GROUP, STAGES, MASKED)),
            (multiply, (1, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m,
                        M, chunks, eps, N, WGS, GROUP, STAGES, MASKED)),
            (multiply, (2, x8, x16, w8, w16, full, empty, x_inv, w_inv, linear, bias, gamma, beta, out, tiles, tiles_m,
                        M, chunks, eps, N, WGS, GROUP, STAGES, MASKED)),
            (load_tiles, (x_desc, w_desc, x16, w16, full, empty, tiles, tiles_m, chunks, N, WGS, GROUP, STAGES)),
        ], [4, 4, 1], [160, 160, 24])


class FusedProduct:
    """What place and sizes decide."""

    def __init__(self, place, M, N, K, eps):
        self.size = M, N, K
        rows = 64 * WARPGROUPS
        tiles_m = triton.cdiv(M, rows)
        tiles = tiles_m * (N // 256)
        default = gl.NVMMASharedLayout.get_default_for
        self.x_tile, self.w_tile = default([64, 64], gl.float16), default([256, 64], gl.float16)
        self.split = PlannedLaunch(
            split_both, ((M + N) // SPLIT_WARPS,), (M // SPLIT_WARPS,), K=K, WARPS=SPLIT_WARPS, num_warps=SPLIT_WARPS)
        processors = torch.cuda.get_device_properties(place[0]).multi_processor_count
        self.product = PlannedLaunch(
            fused_product, (min(tiles, processors),), (tiles, tiles_m, M, K // 64, eps), N=N,
            X8=default([64, 128], tl.float8e4nv), W8=default([256, 128], tl.float8e4nv), WGS=WARPGROUPS, GROUP=GROUP,
            STAGES=STAGES, MASKED=M % rows > 0, num_warps=4)

    def __call__(self, x, weight, linear, bias, gamma, beta):
        M, N, K = self.size
        x16, w16 = (torch.empty((rows, 2 * K), device=x.device, dtype=torch.float16) for rows in (M, N))
        x_inv, w_inv = (torch.empty((rows,), device=x.device, dtype=torch.float32) for rows in (M, N))
        out = torch.empty((M, N), device=x.device, dtype=torch.float32)
        x8, w8 = x16.view(torch.float8_e4m3fn), w16.view(torch.float8_e4m3fn)
        self.split(x, weight, x8, x16, w8, w16, x_inv, w_inv)
        x_desc = TensorDescriptor(x16, (M, 2 * K), (2 * K, 1), [64, 64], self.x_tile)
        w_desc = TensorDescriptor(w16, (N, 2 * K), (2 * K, 1), [256, 64], self.w_tile)
        self.product(x_desc, w_desc, x_inv, w_inv, linear, bias, gamma, beta, out)
        return out


fused_product_of = functools.lru_cache(maxsize=None)(FusedProduct)


class ModelNew(nn.Module):
    """
    A model that performs a matrix multiplication, applies Swish activation, sums with a bias term, and normalizes with GroupNorm.
    """
    def __init__(self, in_features, out_features, num_groups, bias_shape):
        super(ModelNew, self).__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    @torch.no_grad()
    def forward(self, x):
        norm = self.group_norm
        tensors = (x.contiguous(), self.matmul.weight, self.matmul.bias, self.bias, norm.weight, norm.bias)
        N, K = self.matmul.weight.shape
        if x.dim() != 2 or x.shape[1] != K or self.bias.shape != (N,) or N != 64 * norm.num_groups:
            raise RuntimeError("shape not supported")
        M = x.shape[0]
        if M == 0 or M % 8 or N % 256 or K not in (128, 256, 512, 1024, 2048) or max(M, N) * max(N, 4 * K) >= 2**31:
            raise RuntimeError("shape not supported")
        if not all(t.is_cuda and t.dtype == torch.float32 and t.is_contiguous() for t in tensors):
            raise RuntimeError("tensors not supported")
        return fused_product_of(place_of(*tensors), M, N, K, float(norm.eps))(*tensors)
