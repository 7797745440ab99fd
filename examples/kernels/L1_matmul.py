"""C = A @ B in fp32 for 4096 x 4096 matrices: one fp16 product and both cross products in fp8 on tensor cores."""

import functools

import torch
import triton
import triton.language as tl
from torch import nn
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

M = 4096
N = 4096
K = 4096

PREP_K = 128  # tune: 64, 128
PREP_WARPS = 8  # tune: 4, 8
GEMM_WARPGROUPS = 2  # tune: 2, 3
GEMM_STAGES = 4  # tune: 3, 4
GEMM_GROUP = 8  # tune: 4, 8, 16
# tune if: (64 * GEMM_WARPGROUPS + 256) * 128 * GEMM_STAGES <= 229376


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


# Each row of A and each column of B is scaled by a power of two that brings its largest finite magnitude to
# [2^13, 2^14): s = hi + lo with hi in fp16, |lo| <= 4. Then s / 64 and 64 lo fit e4m3, and their products have the scale
# of hi hi. A row of scratch has 4 K bytes: A's is (s / 64, 64 lo, hi), B's is (64 lo, s / 64, hi), so that one walk along
# both rows meets both cross products, then the large one. Numbers that are not finite count as zero and are listed.


@triton.jit
def split_power(top):
    # The power of two for a row whose largest magnitude has these bits.
    return (tl.minimum(267 - (top >> 23), 253) << 23).to(tl.float32, bitcast=True)


@triton.jit
def split_row(row, a_ptr, a16_ptr, a8_ptr, top_ptr, count_ptr, list_ptr, K: tl.constexpr):
    # A whole row of A, read once.
    k = tl.arange(0, K)
    v = tl.load(a_ptr + row * K + k, eviction_policy="evict_first")
    bits = v.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    top = tl.max(bits, axis=0)
    if top >= 0x7F800000:
        bad = bits >= 0x7F800000
        top = tl.max(tl.where(bad, 0, bits), axis=0)
        place = tl.atomic_add(count_ptr + tl.zeros_like(k), 1, mask=bad)
        tl.store(list_ptr + place, row * K + k, mask=bad)
    tl.store(top_ptr + row, top)
    s = tl.where(bits < 0x7F800000, v, 0.0) * split_power(top)
    hi = s.to(tl.float16)
    lo = s - hi.to(tl.float32)
    to = row * (4 * K) + k
    tl.store(a16_ptr + row * (2 * K) + K + k, hi)
    tl.store(a8_ptr + to, (s * 0.015625).to(tl.float8e4nv))
    tl.store(a8_ptr + to + K, (lo * 64.0).to(tl.float8e4nv))


@triton.jit
def split_largest(pid, b_ptr, top_ptr, count_ptr, list_ptr, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
                  BK: tl.constexpr):
    # The bits of the largest finite magnitude of each column of B; larger numbers have larger bits.
    n = pid % (N // BN) * BN + tl.arange(0, BN)
    k = pid // (N // BN) * BK + tl.arange(0, BK)
    at = k[:, None] * N + n[None, :]
    bits = tl.load(b_ptr + at).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    top = tl.max(bits, axis=0)
    if tl.max(top, axis=0) >= 0x7F800000:
        bad = bits >= 0x7F800000
        top = tl.max(tl.where(bad, 0, bits), axis=0)
        place = tl.atomic_add(count_ptr + tl.zeros_like(at), 1, mask=bad)
        tl.store(list_ptr + place, n[None, :] * K + k[:, None], mask=bad)
    tl.atomic_max(top_ptr + n, top)


@triton.jit
def split_first(a_ptr, b_ptr, a16_ptr, a8_ptr, top_a_ptr, ints_ptr, lists_ptr, M: tl.constexpr, N: tl.constexpr,
                K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # The rows of A; then the largest of each column of B, so that B lies in the L2 at the end.
    # ints: the tops of B's columns, then how many numbers of A and of B are listed.
    pid = tl.program_id(0)
    if pid < M:
        split_row(pid, a_ptr, a16_ptr, a8_ptr, top_a_ptr, ints_ptr + N, lists_ptr, K)
    else:
        split_largest(pid - M, b_ptr, ints_ptr, ints_ptr + N + 1, lists_ptr + M * K, N, K, BN, BK)


@triton.jit
def split_columns(b_ptr, b16_ptr, b8_ptr, top_ptr, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
                  BK: tl.constexpr):
    # The columns of B, transposed. The last k come first: they were read last and may still lie in the L2.
    pid = tl.program_id(0)
    n = pid % (N // BN) * BN + tl.arange(0, BN)
    k = (K // BK - 1 - pid // (N // BN)) * BK + tl.arange(0, BK)
    v = tl.load(b_ptr + k[None, :] * N + n[:, None], eviction_policy="evict_first")
    power = split_power(tl.load(top_ptr + n))
    s = tl.where(tl.abs(v) < float("inf"), v, 0.0) * power[:, None]
    hi = s.to(tl.float16)
    lo = s - hi.to(tl.float32)
    to = n[:, None] * (4 * K) + k[None, :]
    tl.store(b16_ptr + n[:, None] * (2 * K) + K + k[None, :], hi)
    tl.store(b8_ptr + to, (lo * 64.0).to(tl.float8e4nv))
    tl.store(b8_ptr + to + K, (s * 0.015625).to(tl.float8e4nv))


@triton.jit
def spread(count_ptr, list_ptr, x_ptr, other_ptr, out_ptr, K: tl.constexpr, N: tl.constexpr, x_row: tl.constexpr,
           x_k: tl.constexpr, s_k: tl.constexpr, s_n: tl.constexpr, o_row: tl.constexpr, o_n: tl.constexpr,
           BLOCK: tl.constexpr):
    # Add what the listed numbers x[row, k] contribute to out[row, :]: x other[k, :].
    for number in range(tl.program_id(0), tl.load(count_ptr), tl.num_programs(0)):
        index = tl.load(list_ptr + number)
        k = index % K
        row = index // K
        v = tl.load(x_ptr + row * x_row + k * x_k)
        for n0 in range(0, N, BLOCK):
            n = n0 + tl.arange(0, BLOCK)
            other = tl.load(other_ptr + k * s_k + n * s_n, mask=n < N, other=0.0)
            tl.atomic_add(out_ptr + row * o_row + n * o_n, v * other, mask=n < N)


@triton.jit
def spreads(ints_ptr, lists_ptr, a_ptr, b_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
            BLOCK: tl.constexpr):
    spread(ints_ptr + N, lists_ptr, a_ptr, b_ptr, out_ptr, K, N, K, 1, N, 1, N, 1, BLOCK)
    spread(ints_ptr + N + 1, lists_ptr + M * K, b_ptr, a_ptr, out_ptr, K, M, 1, N, 1, K, 1, N, BLOCK)


@gluon.jit
def gemm_place(tile, NT: gl.constexpr, GROUP: gl.constexpr):
    # The first row and column of a tile of 128 x 256, in groups of rows of tiles.
    group = tile // (GROUP * NT)
    place = tile % (GROUP * NT)
    return (group * GROUP + place % GROUP) * 128, place // GROUP * 256


@gluon.jit
def gemm_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, n0, step, PARTS: gl.constexpr, WGS: gl.constexpr,
              STEPS: gl.constexpr, STAGES: gl.constexpr):
    # All of a tile's operands: 128 bytes of each row in each step, first fp8, then fp16.
    for i in range(2 * STEPS):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, (64 * PARTS + 256) * 128)
        tma.async_copy_global_to_shared(b_desc, [n0, i * 64], bar, b_slots.index(slot))
        for part in gl.static_range(PARTS):
            tma.async_copy_global_to_shared(a_desc, [m0 + part * 64, i * 64], bar, a_slots.index(WGS * slot + part))
        step += 1
    return step


@gluon.jit
def gemm_loads(a_desc, b_desc, a_slots, b_slots, full, empty, TILES: gl.constexpr, NT: gl.constexpr,
               GROUP: gl.constexpr, WGS: gl.constexpr, STEPS: gl.constexpr, STAGES: gl.constexpr):
    # One warp fills the ring.
    step = 0
    if WGS == 2:
        for tile in range(gl.program_id(0), TILES, gl.num_programs(0)):
            m0, n0 = gemm_place(tile, NT, GROUP)
            step = gemm_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, n0, step, 2, WGS, STEPS, STAGES)
    else:
        first = gl.program_id(0) // NT * 512
        column = gl.program_id(0) % NT * 256
        for part in range(2):
            step = gemm_fill(a_desc, b_desc, a_slots, b_slots, full, empty, first + part * 192, column, step, 3, WGS,
                             STEPS, STAGES)
        step = gemm_fill(a_desc, b_desc, a_slots, b_slots, full, empty, first + 384, column, step, 2, WGS, STEPS, STAGES)


@gluon.jit
def gemm_steps(acc, step, WG: gl.constexpr, a_slots, b_slots, full, empty, FP8: gl.constexpr, WGS: gl.constexpr,
               STEPS: gl.constexpr, STAGES: gl.constexpr):
    # acc plus the products of one kind. A step's product runs while the next one's is issued.
    shared8: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
    for i in range(STEPS):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), (step // STAGES) & 1)
        if FP8:
            x = a_slots.index(WGS * slot + WG)._reinterpret(gl.float8e4nv, [64, 128], shared8)
            w = b_slots.index(slot)._reinterpret(gl.float8e4nv, [256, 128], shared8)
            acc = warpgroup_mma(x, w.permute((1, 0)), acc, is_async=True)
        else:
            xh = a_slots.index(WGS * slot + WG)
            wh = b_slots.index(slot)
            acc = warpgroup_mma(xh, wh.permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=i > 0)
        step += 1
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
    return acc, step


@gluon.jit
def gemm_inverse(top_ptr, at):
    # One over the power of two of a row.
    return ((254 - gl.minimum(267 - (gl.load(top_ptr + at) >> 23), 253)) << 23).to(gl.float32, bitcast=True)


@gluon.jit
def gemm_tile(step, m0, n0, WG: gl.constexpr, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N: gl.constexpr,
              WGS: gl.constexpr, STEPS: gl.constexpr, STAGES: gl.constexpr):
    # 64 rows and 256 columns: both cross products while the sum is small (fp8 sums have few bits), then the large one.
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 32])
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    cross = gl.zeros([64, 256], gl.float32, layout8)
    cross, step = gemm_steps(cross, step, WG, a_slots, b_slots, full, empty, True, WGS, STEPS, STAGES)
    acc = gl.convert_layout(cross, layout)  # the same places: only the instruction's depth differs
    acc, step = gemm_steps(acc, step, WG, a_slots, b_slots, full, empty, False, WGS, STEPS, STAGES)
    m = m0 + WG * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    n = n0 + gl.arange(0, 256, layout=gl.SliceLayout(0, layout))
    value = acc * gemm_inverse(ta_ptr, m)[:, None] * gemm_inverse(tb_ptr, n)[None, :]
    gl.store(out_ptr + m[:, None] * N + n[None, :], value)
    return step


@gluon.jit
def gemm_multiply(WG: gl.constexpr, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N: gl.constexpr,
                  TILES: gl.constexpr, NT: gl.constexpr, GROUP: gl.constexpr, WGS: gl.constexpr, STEPS: gl.constexpr,
                  STAGES: gl.constexpr):
    # One warpgroup: 64 rows of each tile.
    step = 0
    if WGS == 2:
        for tile in range(gl.program_id(0), TILES, gl.num_programs(0)):
            m0, n0 = gemm_place(tile, NT, GROUP)
            step = gemm_tile(step, m0, n0, WG, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, WGS, STEPS,
                             STAGES)
    else:
        # 512 rows as 192 + 192 + 128: the third warpgroup has no rows of the last tile, and lets its slots pass.
        first = gl.program_id(0) // NT * 512
        column = gl.program_id(0) % NT * 256
        for part in range(3 - WG // 2):
            step = gemm_tile(step, first + part * 192, column, WG, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr,
                             N, WGS, STEPS, STAGES)
        if WG == 2:
            for _i in range(2 * STEPS):
                slot = step % STAGES
                mbarrier.wait(full.index(slot), (step // STAGES) & 1)
                mbarrier.arrive(empty.index(slot), count=1)
                step += 1


@gluon.jit
def gemm(a_desc, b_desc, ta_ptr, tb_ptr, out_ptr, N: gl.constexpr, TILES: gl.constexpr, NT: gl.constexpr,
         GROUP: gl.constexpr, WGS: gl.constexpr, STEPS: gl.constexpr, STAGES: gl.constexpr):
    a_slots = gl.allocate_shared_memory(gl.float16, [WGS * STAGES, 64, 64], a_desc.layout)
    b_slots = gl.allocate_shared_memory(gl.float16, [STAGES, 256, 64], b_desc.layout)
    # A ring of slots: one full, when its tiles have come; one empty, when all warpgroups have read them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=WGS)
    fence_async_shared()
    if WGS == 2:
        gl.warp_specialize([
            (gemm_multiply, (0, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, TILES, NT, GROUP, WGS, STEPS,
                             STAGES)),
            (gemm_multiply, (1, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, TILES, NT, GROUP, WGS, STEPS,
                             STAGES)),
            (gemm_loads, (a_desc, b_desc, a_slots, b_slots, full, empty, TILES, NT, GROUP, WGS, STEPS, STAGES)),
        ], [4, 1], [240, 24])
    else:
        gl.warp_specialize([
            (gemm_multiply, (0, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, TILES, NT, GROUP, WGS, STEPS,
                             STAGES)),
            (gemm_multiply, (1, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, TILES, NT, GROUP, WGS, STEPS,
                             STAGES)),
            (gemm_multiply, (2, a_slots, b_slots, full, empty, ta_ptr, tb_ptr, out_ptr, N, TILES, NT, GROUP, WGS, STEPS,
                             STAGES)),
            (gemm_loads, (a_desc, b_desc, a_slots, b_slots, full, empty, TILES, NT, GROUP, WGS, STEPS, STAGES)),
        ], [4, 4, 1], [160, 160, 24])


class Product:
    """The launches for one device and for the alignments of both operands."""

    def __init__(self, device, *aligned):
        bn = 64
        self.first = PlannedLaunch(split_first, (M + N // bn * (K // 128),), (), M=M, N=N, K=K, BN=bn, BK=128,
                                   num_warps=PREP_WARPS)
        self.columns = PlannedLaunch(split_columns, (N // bn * (K // PREP_K),), (), N=N, K=K, BN=bn, BK=PREP_K,
                                     num_warps=PREP_WARPS)
        tiles = M // 128 * (N // 256)
        programs = torch.cuda.get_device_properties(device).multi_processor_count
        programs = min(tiles, programs) if GEMM_WARPGROUPS == 2 else M // 512 * (N // 256)
        self.gemm = PlannedLaunch(gemm, (programs,), (), N=N, TILES=tiles, NT=N // 256, GROUP=GEMM_GROUP,
                                  WGS=GEMM_WARPGROUPS, STEPS=K // 64, STAGES=GEMM_STAGES, num_warps=4)
        self.spreads = PlannedLaunch(spreads, (256,), (), M=M, N=N, K=K, BLOCK=1024)
        self.a_layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
        self.b_layout = gl.NVMMASharedLayout.get_default_for([256, 64], gl.float16)

    def __call__(self, a, b):
        device = a.device
        ints = torch.zeros(N + 2, device=device, dtype=torch.int32)
        top_a = torch.empty(M, device=device, dtype=torch.int32)
        lists = torch.empty(M * K + N * K, device=device, dtype=torch.int32)
        a16 = torch.empty((M, 2 * K), device=device, dtype=torch.float16)
        b16 = torch.empty((N, 2 * K), device=device, dtype=torch.float16)
        out = torch.empty((M, N), device=device, dtype=torch.float32)
        self.first(a, b, a16, a16.view(torch.float8_e4m3fn), top_a, ints, lists)
        self.columns(b, b16, b16.view(torch.float8_e4m3fn), ints)
        a_desc = TensorDescriptor(a16, (M, 2 * K), (2 * K, 1), [64, 64], self.a_layout)
        b_desc = TensorDescriptor(b16, (N, 2 * K), (2 * K, 1), [256, 64], self.b_layout)
        self.gemm(a_desc, b_desc, top_a, ints, out)
        self.spreads(ints, lists, a, b, out)
        return out


product_of = functools.lru_cache(maxsize=None)(Product)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    @torch.no_grad()
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        if A.shape != (M, K) or B.shape != (K, N) or A.dtype != torch.float32 or B.dtype != torch.float32:
            raise RuntimeError("shape or dtype not supported")
        A, B = A.contiguous(), B.contiguous()
        with torch.cuda.device(A.device):
            return product_of(A.device, A.data_ptr() % 16 == 0, B.data_ptr() % 16 == 0)(A, B)
