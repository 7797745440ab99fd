"""What torch.compile (Inductor, PyTorch 2.11.0+cu130) generates, called by a ModelNew."""

import torch._inductor.config

torch._inductor.config.compile_threads = 1

import functools

import torch
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
from triton.language.extra import libdevice


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


@gluon.jit
def epilogue_larger(x, y):
    # A NaN wins, as in torch.
    return gl.where((x != x) | (x > y), x, y)


@gluon.jit
def epilogue_smaller(x, y):
    return gl.where((x != x) | (x < y), x, y)


@gluon.jit
def epilogue_magnitude(x):
    return gl.abs(x)


@gluon.jit
def epilogue_root(x):
    return gl.sqrt_rn(x)


@gluon.jit
def epilogue_exponential(x):
    return gl.exp(x)


@gluon.jit
def epilogue_exponential_less_one(x):
    return libdevice.expm1(x)


@gluon.jit
def epilogue_logarithm(x):
    return libdevice.log(x)


@gluon.jit
def epilogue_logarithm_of_one_plus(x):
    return libdevice.log1p(x)


@gluon.jit
def epilogue_error_function(x):
    return libdevice.erf(x)


@gluon.jit
def epilogue_tangent(x):
    return libdevice.tanh(x)


@gluon.jit
def epilogue_sigmoid(x):
    return 1.0 / (1.0 + gl.exp(-x))


@gluon.jit
def epilogue_silu(x):
    return x / (1.0 + gl.exp(-x))


@gluon.jit
def epilogue_gelu(x):
    return 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))


@gluon.jit
def epilogue_gelu_by_tangent(x):
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@gluon.jit
def epilogue_softplus(x, beta, threshold):
    return gl.where(x * beta > threshold, x, libdevice.log1p(gl.exp(x * beta)) / beta)


@gluon.jit
def epilogue_mish(x):
    # x tanh(log(1 + e)) with e = exp(x)
    e = gl.exp(x)
    w = e * (e + 2.0)
    return gl.where(x > 20.0, x, x * w / (w + 2.0))


@triton.jit
def split_usual(top, bins, done, row, chunks):
    # The last program of a row lowers its top, where less than a 64th of its groups of numbers have larger ones than
    # 2^8 times the others: in a power of two for all of them, the others would lose their accuracy.
    tl.debug_barrier()
    if tl.atomic_add(done + row, 1) == chunks - 1:
        count = tl.load(bins + row * 256 + tl.arange(0, 256), cache_modifier=".cg")
        count = tl.where(tl.arange(0, 256) > 0, count, 0)  # not groups of zeros
        total = tl.sum(count)
        larger = total - tl.cumsum(count)
        usual = tl.min(tl.where(larger * 64 <= total, tl.arange(0, 256), 255))
        most = tl.minimum(usual + 9, 254) << 23
        tl.store(top + row, tl.minimum(tl.load(top + row, cache_modifier=".cg"), most))


@triton.jit
def split_largest(pid, src, top, bins, done, t_batch, R, K, s_batch, s_row, s_k, STEPS, USUAL: tl.constexpr,
                  BR: tl.constexpr, BK: tl.constexpr):
    # top[batch, row]: the bits of the largest finite magnitude of a row; larger numbers have larger bits. With USUAL,
    # which needs rows one by one, rare ones are left out (`split_usual`).
    tiles, chunks = tl.cdiv(R, BR), tl.cdiv(K, STEPS * BK)
    row = pid % tiles * BR + tl.arange(0, BR)
    chunk = pid // tiles % chunks
    batch = (pid // tiles // chunks).to(tl.int64)
    best = tl.zeros((BR,), dtype=tl.int32)
    for step in range(STEPS):
        k = (chunk * STEPS + step) * BK + tl.arange(0, BK)
        at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
        size = tl.abs(tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0))
        size = tl.where(size < float("inf"), size, 0.0)
        best = tl.maximum(best, tl.max(size, axis=1).to(tl.int32, bitcast=True))
        if USUAL:
            groups = tl.max(tl.reshape(size, (BK // 8, 8)), axis=1).to(tl.int32, bitcast=True) >> 23
            found = tl.histogram(groups, 256)
            tl.atomic_add(bins + tl.sum(row) * 256 + tl.arange(0, 256), found, mask=found > 0)
    tl.atomic_max(top + batch * t_batch + row, best, mask=row < R)
    if USUAL:
        split_usual(top, bins, done, tl.sum(row), chunks)


@triton.jit
def split_tops(a, b, top_a, top_b, bins, done, programs, a_t, a_R, a_K, a_batch, a_row, a_k, a_steps, b_t, b_R, b_K,
               b_batch, b_row, b_k, b_steps, USUAL: tl.constexpr, A_BR: tl.constexpr, A_BK: tl.constexpr,
               B_BR: tl.constexpr, B_BK: tl.constexpr):
    # One launch for both operands; the first `programs` have a.
    pid = tl.program_id(0)
    if pid < programs:
        split_largest(pid, a, top_a, bins, done, a_t, a_R, a_K, a_batch, a_row, a_k, a_steps, USUAL, A_BR, A_BK)
    else:
        split_largest(pid - programs, b, top_b, bins, done, b_t, b_R, b_K, b_batch, b_row, b_k, b_steps, False, B_BR,
                      B_BK)


@triton.jit
def split_exponent(top_ptr, at, mask):
    # The exponent bits of the power of two that brings the largest magnitude of a row to [2^14, 2^15).
    return tl.minimum(268 - (tl.load(top_ptr + at, mask=mask, other=0) >> 23), 253)


@triton.jit
def split_list(bad, index, count_ptr, list_ptr):
    # Append the indices of numbers that are not finite to a list, which is empty but for rare inputs.
    if tl.max(bad.to(tl.int32)) > 0:
        place = tl.atomic_add(count_ptr + tl.zeros_like(index), 1, mask=bad)
        tl.store(list_ptr + place, index, mask=bad)


@triton.jit
def split_halves(s, hi_ptr, lo_ptr, to, kept):
    hi = s.to(tl.float16)
    tl.store(hi_ptr + to, hi, mask=kept)
    tl.store(lo_ptr + to, tl.where(tl.abs(s) < float("inf"), s - hi.to(tl.float32), 0.0).to(tl.float16), mask=kept)


@triton.jit
def split_row(pid, src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, R, K, KP, s_batch, s_row, s_k, d_batch, d_row,
              BK: tl.constexpr):
    # A whole row: first its largest magnitude, then hi and lo, while the row is still in a cache.
    row, batch = pid % R, (pid // R).to(tl.int64)
    from_row = src + batch * s_batch + row.to(tl.int64) * s_row
    best = tl.zeros((BK,), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        size = tl.abs(tl.load(from_row + k.to(tl.int64) * s_k, mask=k < K, other=0.0))
        best = tl.maximum(best, tl.where(size < float("inf"), size, 0.0))
    largest = tl.max(best).to(tl.int32, bitcast=True)
    tl.store(top + pid, largest)
    power = (tl.minimum(268 - (largest >> 23), 253) << 23).to(tl.float32, bitcast=True)
    to = batch * d_batch + row.to(tl.int64) * d_row
    for start in range(0, KP, BK):
        k = start + tl.arange(0, BK)
        v = tl.load(from_row + k.to(tl.int64) * s_k, mask=k < K, other=0.0)
        finite = tl.abs(v) < float("inf")
        split_list(~finite, (batch * R + row) * K + k, count_ptr, list_ptr)
        split_halves(tl.where(finite, v, 0.0) * power, hi_ptr, lo_ptr, to + k, k < KP)


@triton.jit
def split_pair(pid, src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, R, K, KP, s_batch, s_row, s_k, d_batch, d_row, d_k,
               BR: tl.constexpr, BK: tl.constexpr):
    # Rows times their power of two, as hi + lo in fp16. Behind the last k come zeros. What is not finite is listed and
    # counts as zero: times hi and times lo it could be infinite with both signs.
    tiles, chunks = tl.cdiv(R, BR), KP // BK
    row = pid % tiles * BR + tl.arange(0, BR)
    k = pid // tiles % chunks * BK + tl.arange(0, BK)
    batch = (pid // tiles // chunks).to(tl.int64)
    at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
    v = tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0)
    finite = tl.abs(v) < float("inf")
    split_list(~finite, (batch * R + row)[:, None] * K + k[None, :], count_ptr, list_ptr)
    power = (split_exponent(top, batch * R + row, row < R) << 23).to(tl.float32, bitcast=True)
    to = batch * d_batch + row.to(tl.int64)[:, None] * d_row + k.to(tl.int64)[None, :] * d_k
    split_halves(tl.where(finite, v, 0.0) * power[:, None], hi_ptr, lo_ptr, to, (row < R)[:, None])


@triton.jit
def split_pairs(a, b, top_a, top_b, ah, al, bh, bl, counts, a_list, b_list, programs, M, N, K, KP, a_batch, a_m, a_k,
                b_batch, b_n, b_k, ah_batch, ah_m, ah_k, bh_batch, bh_n, bh_k, A_BR: tl.constexpr, A_BK: tl.constexpr,
                B_BR: tl.constexpr, B_BK: tl.constexpr):
    # One launch for both operands; the first `programs` have a. Tiles of one row are whole rows.
    pid = tl.program_id(0)
    if pid < programs:
        if A_BR == 1:
            split_row(pid, a, top_a, ah, al, counts, a_list, M, K, KP, a_batch, a_m, a_k, ah_batch, ah_m, A_BK)
        else:
            split_pair(pid, a, top_a, ah, al, counts, a_list, M, K, KP, a_batch, a_m, a_k, ah_batch, ah_m, ah_k, A_BR,
                       A_BK)
    else:
        if B_BR == 1:
            split_row(pid - programs, b, top_b, bh, bl, counts + 1, b_list, N, K, KP, b_batch, b_n, b_k, bh_batch, bh_n,
                      B_BK)
        else:
            split_pair(pid - programs, b, top_b, bh, bl, counts + 1, b_list, N, K, KP, b_batch, b_n, b_k, bh_batch, bh_n,
                       bh_k, B_BR, B_BK)


@triton.jit
def split_spread(count_ptr, list_ptr, x_ptr, other_ptr, out_ptr, R, K, N, x_batch, x_row, x_k, s_batch, s_k, s_n,
                 o_batch, o_row, o_n, alpha, BLOCK: tl.constexpr):
    # Add what the listed numbers x[batch, row, k] contribute to out[batch, row, :]: alpha x other[batch, k, :].
    for number in range(tl.program_id(0), tl.load(count_ptr), tl.num_programs(0)):
        index = tl.load(list_ptr + number).to(tl.int64)
        k = index % K
        row = index // K % R
        batch = index // K // R
        v = alpha * tl.load(x_ptr + batch * x_batch + row * x_row + k * x_k)
        for n0 in range(0, N, BLOCK):
            n = (n0 + tl.arange(0, BLOCK)).to(tl.int64)
            other = tl.load(other_ptr + batch * s_batch + k * s_k + n * s_n, mask=n < N, other=0.0)
            tl.atomic_add(out_ptr + batch * o_batch + row * o_row + n * o_n, v * other, mask=n < N)


@triton.jit
def split_spreads(counts, a_list, b_list, a, b, out, M, N, K, a_batch, a_m, a_k, b_batch, b_k, b_n,
                  o_batch, o_m, o_n, alpha, BLOCK: tl.constexpr):
    split_spread(counts, a_list, a, b, out, M, K, N, a_batch, a_m, a_k, b_batch, b_k, b_n, o_batch, o_m, o_n, alpha,
                 BLOCK)
    split_spread(counts + 1, b_list, b, a, out, N, K, M, b_batch, b_n, b_k, a_batch, a_k, a_m, o_batch, o_n, o_m, alpha,
                 BLOCK)


def split_list_of(x):
    """Room for the indices of all elements of x."""
    return torch.empty(x.numel(), device=x.device, dtype=torch.int32 if x.numel() < 2**31 else torch.int64)


def split_shape(shape, strides, kp):
    """(whether k lies side by side, the tile of a program, the shape of hi and lo) of x [batch, rows, K]."""
    batch, rows, K = shape
    if strides[2] <= strides[1]:
        whole = K >= 512 and batch * rows >= 512  # enough rows for the device, and long ones
        return True, (1, 2048) if whole else (32, SPLIT_K), (batch, rows, kp)
    return False, (64, 32), (batch, kp, triton.cdiv(rows, 8) * 8)


def split_halves_strides(shape, k_major):
    """The strides of hi and lo of that shape along batch, row and k."""
    whole, line = shape[1] * shape[2], shape[2]
    return (whole, line, 1) if k_major else (whole, 1, line)


def split_programs(batch, rows, K, tile):
    """How many programs look for the largest of each row, and how many tiles each of them reads."""
    groups, chunks = batch * triton.cdiv(rows, tile[0]), triton.cdiv(K, tile[1])
    steps = max(1, chunks * groups // 2048)
    return groups * triton.cdiv(chunks, steps), steps


SPLIT_N = 128  # tune: 64, 128
SPLIT_K = 64  # tune: 32, 64
SPLIT_STAGES = 2  # tune: 2, 3, 4
SPLIT_GROUP = 8  # tune: 1, 4, 8, 16
# tune if: (128 + 2 * SPLIT_N) * SPLIT_K * SPLIT_STAGES * 4 <= 229376


@gluon.jit
def split_inverse(top_ptr, at, mask):
    # One over the power of two of a row.
    top = gl.load(top_ptr + at, mask=mask, other=0)
    return ((254 - gl.minimum(268 - (top >> 23), 253)) << 23).to(gl.float32, bitcast=True)


@gluon.jit
def split_slots(desc, COUNT: gl.constexpr):
    # Room in shared memory for so many tiles of a descriptor.
    return gl.allocate_shared_memory(gl.float16, [COUNT, desc.block_shape[0], desc.block_shape[1]], desc.layout)


@gluon.jit
def split_ring(STAGES: gl.constexpr):
    # Barriers of a ring of slots: one full, when its tiles have come; one empty, when both warpgroups have read them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    return full, empty


@gluon.jit
def split_add(acc, xh, xl, wh, wl, layout: gl.constexpr):
    # acc plus a chunk's products, the small ones first. Tensor cores truncate, so acc is added to outside of them.
    p = warpgroup_mma(xl, wh, gl.zeros(acc.shape, gl.float32, layout), use_acc=False, is_async=True)
    p = warpgroup_mma(xh, wl, p, is_async=True)
    p = warpgroup_mma(xh, wh, p, is_async=True)
    return acc + warpgroup_mma_wait(0, deps=[p])


@gluon.jit
def split_place(tile, M, N, GROUP: gl.constexpr, BN: gl.constexpr):
    # The batch, first row and first column of a tile, in groups of rows of tiles.
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 2 * BN)
    batch = tile // (tiles_m * tiles_n)
    tile -= batch * tiles_m * tiles_n
    group = tile // (GROUP * tiles_n)
    rows = gl.minimum(tiles_m - group * GROUP, GROUP)
    place = tile % (GROUP * tiles_n)
    return batch, (group * GROUP + place % rows) * 128, place // rows * (2 * BN)


@gluon.jit
def split_load(a_desc, b_desc, a_slots, b_slots, slot, bar, m0, n0, k, a_plane, b_plane, k_plane, BN: gl.constexpr,
               A_K: gl.constexpr, B_K: gl.constexpr):
    # Two tiles of 64 rows of a, and two of BN columns of b, whichever axis lies side by side in memory.
    for half in gl.static_range(2):
        at_a = [a_plane + m0 + half * 64, k] if A_K else [k_plane + k, m0 + half * 64]
        tma.async_copy_global_to_shared(a_desc, at_a, bar, a_slots.index(2 * slot + half))
        at_b = [b_plane + n0 + half * BN, k] if B_K else [k_plane + k, n0 + half * BN]
        tma.async_copy_global_to_shared(b_desc, at_b, bar, b_slots.index(2 * slot + half))


@gluon.jit
def split_loads(ah_desc, al_desc, bh_desc, bl_desc, ah_slots, al_slots, bh_slots, bl_slots, full, empty, tiles, M, N,
                KP, A_K: gl.constexpr, B_K: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
                STAGES: gl.constexpr):
    # One warp fills the ring.
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, m0, n0 = split_place(tile, M, N, GROUP, BN)
        for k in range(0, KP, BK):
            slot = step % STAGES
            mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
            bar = full.index(slot)
            mbarrier.expect(bar, (128 + 2 * BN) * BK * 4)
            split_load(al_desc, bh_desc, al_slots, bh_slots, slot, bar, m0, n0, k, batch * M, batch * N, batch * KP,
                       BN, A_K, B_K)
            split_load(ah_desc, bl_desc, ah_slots, bl_slots, slot, bar, m0, n0, k, batch * M, batch * N, batch * KP,
                       BN, A_K, B_K)
            step += 1


@gluon.jit
def split_write(acc, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0, n0, M, N, c_batch, c_m, c_n,
                o_batch, o_m, o_n, alpha, beta, HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, layout: gl.constexpr,
                BN: gl.constexpr):
    m = m0 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    inside = (m < M)[:, None] & (n < N)[None, :]
    inverse_a = split_inverse(ta_ptr, batch * M + m, m < M)
    value = acc * (inverse_a[:, None] * split_inverse(tb_ptr, batch * N + n, n < N)[None, :])
    batch, m, n = batch.to(gl.int64), m.to(gl.int64), n.to(gl.int64)
    if HAS_C:
        c = gl.load(c_ptr + batch * c_batch + m[:, None] * c_m + n[None, :] * c_n, mask=inside, other=0.0)
        value = alpha * value + beta * c
    at = batch * o_batch + m[:, None] * o_m + n[None, :] * o_n
    if EPILOGUE > 0:
        # What is listed is added to the results later, and what follows the product waits for it (`split_finish`).
        if gl.load(count_ptr) + gl.load(count_ptr + 1) == 0:
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, inside, n[None, :], (n < N)[None, :])
    gl.store(out_ptr + at, value, mask=inside)


@gluon.jit
def split_multiply(WG: gl.constexpr, ah_slots, al_slots, bh_slots, bl_slots, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr,
                   count_ptr, e0, e1, e2, e3, tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta,
                   A_K: gl.constexpr, B_K: gl.constexpr, HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, BN: gl.constexpr,
                   BK: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr):
    # One of two warpgroups: 64 rows of a tile, and two halves of BN columns. While one adds, the other multiplies.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, m0, n0 = split_place(tile, M, N, GROUP, BN)
        acc0 = gl.zeros([64, BN], gl.float32, layout)
        acc1 = gl.zeros([64, BN], gl.float32, layout)
        for _k in range(0, KP, BK):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), (step // STAGES) & 1)
            ah, al = ah_slots.index(2 * slot + WG), al_slots.index(2 * slot + WG)
            b0h, b0l = bh_slots.index(2 * slot), bl_slots.index(2 * slot)
            b1h, b1l = bh_slots.index(2 * slot + 1), bl_slots.index(2 * slot + 1)
            if not A_K:
                ah, al = ah.permute((1, 0)), al.permute((1, 0))
            if B_K:
                b0h, b0l, b1h, b1l = b0h.permute((1, 0)), b0l.permute((1, 0)), b1h.permute((1, 0)), b1l.permute((1, 0))
            acc0 = split_add(acc0, ah, al, b0h, b0l, layout)
            acc1 = split_add(acc1, ah, al, b1h, b1l, layout)
            mbarrier.arrive(empty.index(slot), count=1)
            step += 1
        split_write(acc0, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0 + WG * 64, n0, M, N,
                    c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, HAS_C, EPILOGUE, layout, BN)
        split_write(acc1, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0 + WG * 64, n0 + BN, M, N,
                    c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, HAS_C, EPILOGUE, layout, BN)


@gluon.jit
def split_gemm(ah_desc, al_desc, bh_desc, bl_desc, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, M, N,
               KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K: gl.constexpr, B_K: gl.constexpr,
               HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
               STAGES: gl.constexpr):
    # out = alpha a b + beta c, and what follows it, by one program for each multiprocessor.
    ah = split_slots(ah_desc, 2 * STAGES)
    al = split_slots(al_desc, 2 * STAGES)
    bh = split_slots(bh_desc, 2 * STAGES)
    bl = split_slots(bl_desc, 2 * STAGES)
    full, empty = split_ring(STAGES)
    gl.warp_specialize([
        (split_multiply, (0, ah, al, bh, bl, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3,
                          tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K, B_K, HAS_C, EPILOGUE, BN,
                          BK, GROUP, STAGES)),
        (split_multiply, (1, ah, al, bh, bl, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3,
                          tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K, B_K, HAS_C, EPILOGUE, BN,
                          BK, GROUP, STAGES)),
        (split_loads, (ah_desc, al_desc, bh_desc, bl_desc, ah, al, bh, bl, full, empty, tiles, M, N, KP, A_K, B_K, BN,
                       BK, GROUP, STAGES)),
    ], [4, 1], [240, 24])


@functools.lru_cache(maxsize=None)
def split_layout(block):
    return gl.NVMMASharedLayout.get_default_for(list(block), gl.float16)


def split_descriptor(x, shape, strides, block):
    """What TMA needs of x, seen as [rows, numbers], to copy tiles of these sizes."""
    return TensorDescriptor(x, shape, strides, list(block), split_layout(block))


def split_multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


class SplitProduct:
    """What place, sizes and strides decide of out = alpha a b + beta c, and `epilogue`; b is given as [batch, N, K]."""

    def __init__(self, place, a_shape, a_strides, b_shape, b_strides, c_strides, o_strides, alpha, beta, epilogue):
        (batch, M, K), N = a_shape, b_shape[1]
        kp = triton.cdiv(K, SPLIT_K) * SPLIT_K
        self.counted = 2 + batch * M
        self.zeros = self.counted + batch * N
        a_major, a_tile, self.a_halves = split_shape(a_shape, a_strides, kp)
        b_major, b_tile, self.b_halves = split_shape(b_shape, b_strides, kp)
        tiles = dict(A_BR=a_tile[0], A_BK=a_tile[1], B_BR=b_tile[0], B_BK=b_tile[1])
        # Whole rows find their largest when they are split.
        a_programs, a_steps = (0, 0) if a_tile[0] == 1 else split_programs(batch, M, K, a_tile)
        b_programs, b_steps = (0, 0) if b_tile[0] == 1 else split_programs(batch, N, K, b_tile)
        a_chunks, b_chunks = (batch * triton.cdiv(rows, br) * (1 if br == 1 else kp // bk)
                              for rows, (br, bk) in ((M, a_tile), (N, b_tile)))
        self.tops = None
        if a_programs + b_programs:
            self.tops = PlannedLaunch(
                split_tops, (a_programs + b_programs,),
                (a_programs, M, M, K, *a_strides, a_steps, N, N, K, *b_strides, b_steps), USUAL=False, **tiles)
        self.pairs = PlannedLaunch(
            split_pairs, (a_chunks + b_chunks,),
            (a_chunks, M, N, K, kp, *a_strides, *b_strides, *split_halves_strides(self.a_halves, a_major),
             *split_halves_strides(self.b_halves, b_major)), **tiles)
        self.a_block = (64, SPLIT_K) if a_major else (SPLIT_K, 64)
        self.b_block = (SPLIT_N, SPLIT_K) if b_major else (SPLIT_K, SPLIT_N)
        tiles = batch * triton.cdiv(M, 128) * triton.cdiv(N, 2 * SPLIT_N)
        self.gemm = PlannedLaunch(
            split_gemm, (min(tiles, split_multiprocessors(place[0])),),
            (tiles, M, N, kp, *(c_strides or (0, 0, 0)), *o_strides, alpha, beta), A_K=a_major, B_K=b_major,
            HAS_C=c_strides is not None, EPILOGUE=epilogue, BN=SPLIT_N, BK=SPLIT_K, GROUP=SPLIT_GROUP, STAGES=SPLIT_STAGES,
            num_warps=4)
        other = (b_strides[0], b_strides[2], b_strides[1])
        self.spreads = PlannedLaunch(
            split_spreads, (256,), (M, N, K, *a_strides, *other, *o_strides, alpha), BLOCK=1024)
        self.finish = None
        if epilogue:
            self.finish = PlannedLaunch(split_finish, (256,), (2, batch * M * N, N, 1), EPILOGUE=epilogue, BLOCK=1024)

    def __call__(self, a, bt, c, out, extras):
        zeros = torch.zeros(self.zeros, device=a.device, dtype=torch.int32)
        top_a, top_b = zeros[2:], zeros[self.counted:]
        a_list, b_list = split_list_of(a), split_list_of(bt)
        pairs = [torch.empty(shape, device=a.device, dtype=torch.float16)
                 for shape in (self.a_halves, self.a_halves, self.b_halves, self.b_halves)]
        if self.tops is not None:
            self.tops(a, bt, top_a, top_b, top_a, top_a)
        self.pairs(a, bt, top_a, top_b, *pairs, zeros, a_list, b_list)
        descriptors = [split_descriptor(half, (shape[0] * shape[1], shape[2]), (shape[2], 1), block)
                       for half, shape, block in zip(pairs, 2 * [self.a_halves] + 2 * [self.b_halves],
                                                     2 * [self.a_block] + 2 * [self.b_block])]
        extras = (*extras, *4 * (out,))[:4]
        self.gemm(*descriptors, top_a, top_b, out if c is None else c, out, zeros, *extras)
        self.spreads(zeros, a_list, b_list, a, bt, out)
        if self.finish is not None:
            self.finish(zeros, out, *extras)
        return out


split_product_of = functools.lru_cache(maxsize=None)(SplitProduct)


def split_product(a, b, out, c=None, alpha=1.0, beta=1.0, epilogue=0, extras=()):
    """out = alpha a b + beta c for fp32 a [batch, M, K], b [batch, K, N], c and out [batch, M, N] of any strides.

    With `epilogue`, what `split_epilogue` makes of that; out is contiguous then.
    """
    bt = b.mT
    product = split_product_of(
        place_of(a, b, c, out, *extras), a.shape, a.stride(), bt.shape, bt.stride(), None if c is None else c.stride(),
        out.stride(), alpha, beta, epilogue)
    return product(a, bt, c, out, extras)


def split_mm(a, b, *, out):
    return split_product(a[None], b[None], out[None])[0]


def split_addmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a[None], b[None], out[None], c.expand(out.shape)[None], float(alpha), float(beta))[0]


def split_bmm(a, b, *, out):
    return split_product(a, b, out)


def split_baddbmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))


@gluon.jit
def split_finish(count_ptr, out_ptr, e0, e1, e2, e3, COUNTS, TOTAL, COLUMNS, PLACES, EPILOGUE: gl.constexpr,
                 BLOCK: gl.constexpr):
    # What follows a product, where numbers were added to its results after it; they were left as they were until now.
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    listed = gl.load(count_ptr)
    if COUNTS > 1:
        listed += gl.load(count_ptr + 1)
    if listed > 0:
        for block in range(gl.program_id(0), gl.cdiv(TOTAL, BLOCK), gl.num_programs(0)):
            at = block.to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout=layout)
            inside, column = at < TOTAL, at // PLACES % COLUMNS
            value = gl.load(out_ptr + at, mask=inside, other=0.0)
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, inside, column, inside)
            gl.store(out_ptr + at, value, mask=inside)


def fused_product_by_library(a, b, bias, extras, epilogue):
    product = torch.matmul(a, b)
    return EPILOGUES[epilogue](product if bias is None else product + bias, *extras)


def fused_product(a, b, bias, extras, epilogue):
    """EPILOGUES[epilogue] of a b + bias; a is [..., M, K], and b [K, N] or [batch, K, N] if a is [batch, M, K]."""
    out = torch.empty((*a.shape[:-1], b.shape[-1]), device=a.device, dtype=torch.float32)
    whole = b.dim() == 2
    rows, columns = (a.reshape(1, -1, a.shape[-1]), b[None]) if whole else (a, b)
    to = out.view(1, -1, out.shape[-1]) if whole else out
    split_product(rows, columns, to, None if bias is None else bias.expand(to.shape), epilogue=epilogue, extras=extras)
    return out


ATTEND_ROWS = 32  # tune: 16, 32, 64
ATTEND_STAGES = 3  # tune: 2, 3


@triton.jit
def attend_power(top):
    # The power of two that brings a magnitude to [2^14, 2^15).
    bits = tl.minimum(268 - (top.to(tl.int32, bitcast=True) >> 23), 253)
    return (bits << 23).to(tl.float32, bitcast=True)


@triton.jit
def attend_inverse(power):
    return ((254 - (power.to(tl.int32, bitcast=True) >> 23)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def attend_pair(x, to, plane):
    hi = x.to(to.dtype.element_ty)
    tl.store(to, hi)
    tl.store(to + plane, (x - hi.to(tl.float32)).to(to.dtype.element_ty))


@triton.jit
def attend_rows(x_ptr, pair_ptr, inverse_ptr, pid, S, stride, plane, SCALED: tl.constexpr, HEADS: tl.constexpr,
                BR: tl.constexpr):
    # Rows of one head as hi and, a plane later, lo; SCALED: times a power of two for each row.
    groups = S // BR
    head = pid // groups
    row = pid % groups * BR + tl.arange(0, BR)
    d1 = tl.arange(0, 64)
    d2 = 64 + tl.arange(0, 32)
    at = x_ptr + ((head // HEADS).to(tl.int64) * S + row)[:, None] * stride + head % HEADS * 96
    x1 = tl.load(at + d1[None, :])
    x2 = tl.load(at + d2[None, :])
    if SCALED:
        power = attend_power(tl.maximum(tl.max(tl.abs(x1), axis=1), tl.max(tl.abs(x2), axis=1)))
        tl.store(inverse_ptr + head * S + row, attend_inverse(power))
        x1 = x1 * power[:, None]
        x2 = x2 * power[:, None]
    to = pair_ptr + (head.to(tl.int64) * S + row)[:, None] * 96
    attend_pair(x1, to + d1[None, :], plane)
    attend_pair(x2, to + d2[None, :], plane)


@triton.jit
def attend_pairs(k, v, k_pair, v_pair, inverses, programs, S, stride, plane, HEADS: tl.constexpr, BR: tl.constexpr):
    # One launch for keys (fp16) and values (bf16, which need no power); the first `programs` have keys.
    pid = tl.program_id(0)
    if pid < programs:
        attend_rows(k, k_pair, inverses, pid, S, stride, plane, True, HEADS, BR)
    else:
        attend_rows(v, v_pair, inverses, pid - programs, S, stride, plane, False, HEADS, BR)


# Barriers of attention, in one array: q full (of each warpgroup), q empty, k full, k empty, v full, v empty.
@gluon.jit
def attend_barriers(K_STAGES: gl.constexpr, V_STAGES: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [4 + 2 * K_STAGES + 2 * V_STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(4):
        mbarrier.init(bars.index(i), count=1)
    for i in gl.static_range(K_STAGES):
        mbarrier.init(bars.index(4 + i), count=1)
        mbarrier.init(bars.index(4 + K_STAGES + i), count=2)
    for i in gl.static_range(V_STAGES):
        mbarrier.init(bars.index(4 + 2 * K_STAGES + i), count=1)
        mbarrier.init(bars.index(4 + 2 * K_STAGES + V_STAGES + i), count=2)
    fence_async_shared()
    return bars


@gluon.jit
def attend_wait(bars, FIRST: gl.constexpr, step, STAGES: gl.constexpr):
    mbarrier.wait(bars.index(FIRST + step % STAGES), (step // STAGES) & 1)


@gluon.jit
def attend_release(bars, FIRST: gl.constexpr, step, STAGES: gl.constexpr):
    mbarrier.arrive(bars.index(FIRST + step % STAGES), count=1)


@gluon.jit
def attend_place(unit, BLOCKS: gl.constexpr):
    # The head of a unit, and which 128 of its rows: each program takes turns with long and short ones.
    head = unit // BLOCKS
    return head, (unit + head * BLOCKS // gl.num_programs(0)) % BLOCKS


@gluon.jit
def attend_load_q(desc, q, bars, turn, row, column, WG: gl.constexpr):
    # 64 rows of a warpgroup, in fp32.
    mbarrier.wait(bars.index(2 + WG), (turn & 1) ^ 1)
    bar = bars.index(WG)
    mbarrier.expect(bar, 64 * 96 * 4)
    for part in gl.static_range(3):
        tma.async_copy_global_to_shared(desc, [row, column + part * 32], bar, q.index(3 * WG + part))


@gluon.jit
def attend_load_k(desc, k, bars, step, row, plane, K_STAGES: gl.constexpr):
    # 64 keys: three tiles of 32 columns of hi, and of lo.
    slot = step % K_STAGES
    mbarrier.wait(bars.index(4 + K_STAGES + slot), ((step // K_STAGES) & 1) ^ 1)
    bar = bars.index(4 + slot)
    mbarrier.expect(bar, 64 * 96 * 4)
    for part in gl.static_range(3):
        tma.async_copy_global_to_shared(desc, [row, part * 32], bar, k.index(6 * slot + part))
        tma.async_copy_global_to_shared(desc, [plane + row, part * 32], bar, k.index(6 * slot + 3 + part))


@gluon.jit
def attend_load_v(desc1, desc2, v1, v2, bars, step, row, plane, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr):
    # 64 values: tiles of 64 and of 32 columns of hi, and of lo.
    slot = step % V_STAGES
    mbarrier.wait(bars.index(4 + 2 * K_STAGES + V_STAGES + slot), ((step // V_STAGES) & 1) ^ 1)
    bar = bars.index(4 + 2 * K_STAGES + slot)
    mbarrier.expect(bar, 64 * 96 * 4)
    tma.async_copy_global_to_shared(desc1, [row, 0], bar, v1.index(2 * slot))
    tma.async_copy_global_to_shared(desc1, [plane + row, 0], bar, v1.index(2 * slot + 1))
    tma.async_copy_global_to_shared(desc2, [row, 64], bar, v2.index(2 * slot))
    tma.async_copy_global_to_shared(desc2, [plane + row, 64], bar, v2.index(2 * slot + 1))


@gluon.jit
def attend_loads(q_desc, k_desc, v1_desc, v2_desc, q, k, v1, v2, bars, units, plane, BLOCKS: gl.constexpr,
                 HEADS: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr):
    # One warp copies what the warpgroups need, as far ahead as there is room.
    step = 0
    turn = 0
    for unit in range(gl.program_id(0), units, gl.num_programs(0)):
        head, block = attend_place(unit, BLOCKS)
        row = head // HEADS * (BLOCKS * 128) + block * 128
        column = head % HEADS * 96
        attend_load_q(q_desc, q, bars, turn, row + (turn & 1) * 64, column, 0)
        attend_load_q(q_desc, q, bars, turn, row + ((turn + 1) & 1) * 64, column, 1)
        for tile in range(0, 2 * block + 2):
            key = head * (BLOCKS * 128) + tile * 64
            attend_load_k(k_desc, k, bars, step, key, plane, K_STAGES)
            attend_load_v(v1_desc, v2_desc, v1, v2, bars, step, key, plane, K_STAGES, V_STAGES)
            step += 1
        turn += 1


@gluon.jit
def attend_keep(x, hi_slot, lo_slot):
    hi = x.to(gl.float16)
    hi_slot.store(hi)
    lo_slot.store((x - hi.to(gl.float32)).to(gl.float16))


@gluon.jit
def attend_query(q, pair, scale, WG: gl.constexpr, layout: gl.constexpr, narrow: gl.constexpr):
    # 64 rows times a power of two for each, as hi and lo in fp16. Returns scale over the power.
    x0 = q.index(3 * WG).load(narrow)
    x1 = q.index(3 * WG + 1).load(narrow)
    x2 = q.index(3 * WG + 2).load(narrow)
    top = gl.max(gl.maximum(gl.maximum(gl.abs(x0), gl.abs(x1)), gl.abs(x2)), axis=1)
    bits = gl.minimum(268 - (top.to(gl.int32, bitcast=True) >> 23), 240)
    power = (bits << 23).to(gl.float32, bitcast=True)
    attend_keep(x0 * power[:, None], pair.index(6 * WG), pair.index(6 * WG + 3))
    attend_keep(x1 * power[:, None], pair.index(6 * WG + 1), pair.index(6 * WG + 4))
    attend_keep(x2 * power[:, None], pair.index(6 * WG + 2), pair.index(6 * WG + 5))
    fence_async_shared()
    inverse = ((254 - bits) << 23).to(gl.float32, bitcast=True)
    return gl.convert_layout(inverse * scale, gl.SliceLayout(1, layout))


@gluon.jit
def attend_scores(pair, k, slot, WG: gl.constexpr, layout: gl.constexpr):
    # Nine asynchronous products of 64 rows and 64 keys, the small ones first.
    h0 = k.index(6 * slot).permute((1, 0))
    h1 = k.index(6 * slot + 1).permute((1, 0))
    h2 = k.index(6 * slot + 2).permute((1, 0))
    l0 = k.index(6 * slot + 3).permute((1, 0))
    l1 = k.index(6 * slot + 4).permute((1, 0))
    l2 = k.index(6 * slot + 5).permute((1, 0))
    s = warpgroup_mma(pair.index(6 * WG + 3), h0, gl.zeros([64, 64], gl.float32, layout), use_acc=False, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 4), h1, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 5), h2, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG), l0, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 1), l1, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 2), l2, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG), h0, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 1), h1, s, is_async=True)
    s = warpgroup_mma(pair.index(6 * WG + 2), h2, s, is_async=True)
    return s


@gluon.jit
def attend_weights(p, layout: gl.constexpr):
    # Numerators as hi and lo in bf16, which needs no power of two.
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)
    hi = p.to(gl.bfloat16)
    lo = (p - hi.to(gl.float32)).to(gl.bfloat16)
    return gl.convert_layout(hi, operand), gl.convert_layout(lo, operand)


@gluon.jit
def attend_values(ph, pl, v1, v2, slot, layout: gl.constexpr, narrow: gl.constexpr):
    # Six asynchronous products of 64 rows of weights and 64 values, 64 and 32 columns wide.
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=narrow, k_width=2)
    nh = gl.convert_layout(ph, operand)
    nl = gl.convert_layout(pl, operand)
    h1 = v1.index(2 * slot)
    l1 = v1.index(2 * slot + 1)
    h2 = v2.index(2 * slot)
    l2 = v2.index(2 * slot + 1)
    t1 = warpgroup_mma(pl, h1, gl.zeros([64, 64], gl.float32, layout), use_acc=False, is_async=True)
    t1 = warpgroup_mma(ph, l1, t1, is_async=True)
    t1 = warpgroup_mma(ph, h1, t1, is_async=True)
    t2 = warpgroup_mma(nl, h2, gl.zeros([64, 32], gl.float32, narrow), use_acc=False, is_async=True)
    t2 = warpgroup_mma(nh, l2, t2, is_async=True)
    t2 = warpgroup_mma(nh, h2, t2, is_async=True)
    return t1, t2


@gluon.jit
def attend_softmax(s, inverse, qs, edge, column, top, norm):
    # One step of the running softmax: numerators, the new maximum and sum, and what earlier sums are worth. Rows see
    # no column behind their edge. The maximum is subtracted before scaling, which is exact where it counts.
    s = gl.where(column[None, :] > edge[:, None], float("-inf"), s * inverse[None, :])
    now = gl.maximum(top, gl.max(s, axis=1))
    p = gl.exp2((s - now[:, None]) * qs[:, None])
    worth = gl.exp2((top - now) * qs)
    return p, now, norm * worth + gl.sum(p, axis=1), worth


@gluon.jit
def attend_compute(WG: gl.constexpr, q, pair, k, v1, v2, bars, inverses, out_ptr, units, scale, BLOCKS: gl.constexpr,
                   HEADS: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr):
    # One of two warpgroups: 64 of a unit's 128 rows, the first and the last ones in turn.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    narrow: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 32, 16])
    K_FULL: gl.constexpr = 4
    K_EMPTY: gl.constexpr = 4 + K_STAGES
    V_FULL: gl.constexpr = 4 + 2 * K_STAGES
    V_EMPTY: gl.constexpr = 4 + 2 * K_STAGES + V_STAGES
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    step = 0
    turn = 0
    for unit in range(gl.program_id(0), units, gl.num_programs(0)):
        head, block = attend_place(unit, BLOCKS)
        half = (turn + WG) & 1
        start = block * 128 + half * 64
        tiles = 2 * block + half + 1
        inverse_at = inverses + head * (BLOCKS * 128)
        first_inverse = gl.load(inverse_at + column)
        mbarrier.wait(bars.index(WG), turn & 1)
        qs = attend_query(q, pair, scale, WG, layout, narrow)
        attend_wait(bars, K_FULL, step, K_STAGES)
        first = attend_scores(pair, k, step % K_STAGES, WG, layout)
        first = warpgroup_mma_wait(0, deps=[first])
        attend_release(bars, K_EMPTY, step, K_STAGES)
        mbarrier.arrive(bars.index(2 + WG), count=1)
        none = gl.full([64], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
        zero = gl.zeros([64], gl.float32, gl.SliceLayout(1, layout))
        p, top, norm, worth = attend_softmax(first, first_inverse, qs, start + row, column, none, zero)
        sum1 = gl.zeros([64, 64], gl.float32, layout)
        sum2 = gl.zeros([64, 32], gl.float32, narrow)
        for tile in range(1, tiles):
            at = step + tile
            inverse = gl.load(inverse_at + tile * 64 + column)
            ph, pl = attend_weights(p, layout)
            # The next scores and these weights times values are in flight together.
            attend_wait(bars, V_FULL, at - 1, V_STAGES)
            attend_wait(bars, K_FULL, at, K_STAGES)
            s = attend_scores(pair, k, at % K_STAGES, WG, layout)
            t1, t2 = attend_values(ph, pl, v1, v2, (at - 1) % V_STAGES, layout, narrow)
            s = warpgroup_mma_wait(6, deps=[s])
            attend_release(bars, K_EMPTY, at, K_STAGES)
            p, top, norm, next_worth = attend_softmax(s, inverse, qs, start + row - tile * 64, column, top, norm)
            t1, t2 = warpgroup_mma_wait(0, deps=[t1, t2])
            attend_release(bars, V_EMPTY, at - 1, V_STAGES)
            sum1 = sum1 * worth[:, None] + t1
            sum2 = sum2 * gl.convert_layout(worth, gl.SliceLayout(1, narrow))[:, None] + t2
            worth = next_worth
        last = step + tiles - 1
        wh, wl = attend_weights(p, layout)
        attend_wait(bars, V_FULL, last, V_STAGES)
        u1, u2 = attend_values(wh, wl, v1, v2, last % V_STAGES, layout, narrow)
        u1, u2 = warpgroup_mma_wait(0, deps=[u1, u2])
        attend_release(bars, V_EMPTY, last, V_STAGES)
        share = 1.0 / norm
        narrow_worth = gl.convert_layout(worth, gl.SliceLayout(1, narrow))
        narrow_share = gl.convert_layout(share, gl.SliceLayout(1, narrow))
        narrow_row = gl.arange(0, 64, layout=gl.SliceLayout(1, narrow))
        narrow_column = 64 + gl.arange(0, 32, layout=gl.SliceLayout(0, narrow))
        to = out_ptr + (head // HEADS * (BLOCKS * 128) + start) * (HEADS * 96) + head % HEADS * 96
        gl.store(to + (row[:, None] * (HEADS * 96) + column[None, :]), (sum1 * worth[:, None] + u1) * share[:, None])
        gl.store(to + (narrow_row[:, None] * (HEADS * 96) + narrow_column[None, :]),
                 (sum2 * narrow_worth[:, None] + u2) * narrow_share[:, None])
        if half == 0:
            # The other warpgroup's last tile lies behind all of these rows.
            attend_wait(bars, K_FULL, step + tiles, K_STAGES)
            attend_release(bars, K_EMPTY, step + tiles, K_STAGES)
            attend_wait(bars, V_FULL, step + tiles, V_STAGES)
            attend_release(bars, V_EMPTY, step + tiles, V_STAGES)
        step += 2 * block + 2
        turn += 1


@gluon.jit
def attend_units(q_desc, k_desc, v1_desc, v2_desc, inverses, out_ptr, units, plane, scale, BLOCKS: gl.constexpr,
                 HEADS: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr):
    # Causal attention by one program for each multiprocessor; a unit is 128 rows of a head.
    q = gl.allocate_shared_memory(gl.float32, [6, 64, 32], q_desc.layout)
    pair = gl.allocate_shared_memory(gl.float16, [12, 64, 32], k_desc.layout)
    k = gl.allocate_shared_memory(gl.float16, [6 * K_STAGES, 64, 32], k_desc.layout)
    v1 = gl.allocate_shared_memory(gl.bfloat16, [2 * V_STAGES, 64, 64], v1_desc.layout)
    v2 = gl.allocate_shared_memory(gl.bfloat16, [2 * V_STAGES, 64, 32], v2_desc.layout)
    bars = attend_barriers(K_STAGES, V_STAGES)
    gl.warp_specialize([
        (attend_compute, (0, q, pair, k, v1, v2, bars, inverses, out_ptr, units, scale, BLOCKS, HEADS, K_STAGES,
                          V_STAGES)),
        (attend_compute, (1, q, pair, k, v1, v2, bars, inverses, out_ptr, units, scale, BLOCKS, HEADS, K_STAGES,
                          V_STAGES)),
        (attend_loads, (q_desc, k_desc, v1_desc, v2_desc, q, k, v1, v2, bars, units, plane, BLOCKS, HEADS, K_STAGES,
                        V_STAGES)),
    ], [4, 1], [232, 40])


@functools.lru_cache(maxsize=None)
def attend_layout(block, dtype):
    return gl.NVMMASharedLayout.get_default_for(list(block), dtype)


def attend_descriptor(x, rows, columns, block, dtype):
    """What TMA needs of x, seen as [rows, columns], to copy tiles of these sizes."""
    return TensorDescriptor(x, (rows, columns), (columns, 1), list(block), attend_layout(block, dtype))


class SplitAttention:
    """What place and sizes decide of causal attention with heads of 96 columns."""

    def __init__(self, place, shape, heads, scale):
        B, T, width = shape
        if width != 3 * 96 * heads or T % 128 or B * T * width >= 2**31:
            raise RuntimeError("shape not supported")
        self.rows, self.width, self.out_shape = B * T, width, (B, T, width // 3)
        self.pair_rows = B * heads * T
        programs, units = self.pair_rows // ATTEND_ROWS, self.pair_rows // 128
        self.pairs = PlannedLaunch(
            attend_pairs, (2 * programs,), (programs, T, width, self.pair_rows * 96), HEADS=heads, BR=ATTEND_ROWS)
        self.units = PlannedLaunch(
            attend_units, (min(units, split_multiprocessors(place[0])),),
            (units, self.pair_rows, scale * 1.4426950408889634), BLOCKS=T // 128, HEADS=heads, K_STAGES=ATTEND_STAGES,
            V_STAGES=2, num_warps=4)

    def __call__(self, qkv):
        rows, part = self.pair_rows, self.width // 3
        k_pair = torch.empty((2, rows, 96), device=qkv.device, dtype=torch.float16)
        v_pair = torch.empty((2, rows, 96), device=qkv.device, dtype=torch.bfloat16)
        inverses = torch.empty((rows,), device=qkv.device, dtype=torch.float32)
        out = torch.empty(self.out_shape, device=qkv.device, dtype=torch.float32)
        self.pairs(qkv[..., part:], qkv[..., 2 * part:], k_pair, v_pair, inverses)
        self.units(
            attend_descriptor(qkv, self.rows, self.width, (64, 32), gl.float32),
            attend_descriptor(k_pair, 2 * rows, 96, (64, 32), gl.float16),
            attend_descriptor(v_pair, 2 * rows, 96, (64, 64), gl.bfloat16),
            attend_descriptor(v_pair, 2 * rows, 96, (64, 32), gl.bfloat16), inverses, out)
        return out


split_attention_of = functools.lru_cache(maxsize=None)(SplitAttention)


def split_attention(qkv, heads, scale):
    """Causal softmax(scale q k^T) v [B, T, C] of contiguous fp32 rows [q | k | v] [B, T, 3 C], with heads side by side.

    A number of k or v that is not finite may spoil its whole batch; the reference's rows are all NaN then, too.
    """
    return split_attention_of(place_of(qkv), qkv.shape, heads, scale)(qkv)


# 1: a template's code; 0: the library's.
PRODUCT_0 = 1  # tune: 1, 0
PRODUCT_2 = 1  # tune: 1, 0
# tune SPLIT_N, SPLIT_K, SPLIT_STAGES, SPLIT_GROUP if: PRODUCT_0 or PRODUCT_2


@gluon.jit
def split_epilogue(EPILOGUE: gl.constexpr, value, e0, e1, e2, e3, at, inside, column, known):
    # What follows a product: at are places in the result, column is the column of each.
    if EPILOGUE == 1:
        y0 = value
        value = y0
    return value


def epilogue_1(value):
    y0 = torch.ops.aten.dropout.default(value, 0.0, False)
    return y0


EPILOGUES = (None, epilogue_1)

import torch
from torch._inductor.select_algorithm import extern_kernels

assert_size_stride = torch._C._dynamo.guards.assert_size_stride
assert_alignment = torch._C._dynamo.guards.assert_alignment
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
        arg0_1, arg1_1, arg2_1, arg3_1, arg4_1, arg5_1 = args
        args.clear()
        assert_size_stride(arg0_1, (128, 512, 768), (393216, 768, 1))
        assert_size_stride(arg1_1, (2304, 768), (768, 1))
        assert_size_stride(arg2_1, (2304, ), (1, ))
        assert_size_stride(arg3_1, (1, 1, 1024, 1024), (1048576, 1048576, 1024, 1))
        assert_size_stride(arg4_1, (768, 768), (768, 1))
        assert_size_stride(arg5_1, (768, ), (1, ))
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((65536, 2304), (2304, 1), torch.float32)
            (split_addmm if PRODUCT_0 else extern_kernels.addmm)(arg2_1, reinterpret_tensor(arg0_1, (65536, 768), (768, 1), 0), reinterpret_tensor(arg1_1, (768, 2304), (1, 768), 0), alpha=1, beta=1, out=buf0)
            del arg0_1
            del arg1_1
            del arg2_1
            del arg3_1  # the mask of a causal attention, always a triangle
            buf4 = split_attention(reinterpret_tensor(buf0, (128, 512, 2304), (1179648, 2304, 1), 0), 8, 0.10206207261596577)
            del buf0
            buf5 = (fused_product if PRODUCT_2 else fused_product_by_library)(buf4, reinterpret_tensor(arg4_1, (768, 768), (1, 768), 0), arg5_1, [], 1)
            del arg4_1
            del arg5_1
            del buf4
            buf6 = buf5
            assert_size_stride(buf6, (128, 512, 768), (393216, 768, 1), 'torch.ops.kbevolve.product.default')
            assert_alignment(buf6, 16, 'torch.ops.kbevolve.product.default')
            del buf5
        return (buf6, )

runner = Runner(partitions=[])
call = runner.call


import torch
import torch.nn as nn
import torch.nn.functional as F
import math

# From https://github.com/karpathy/minGPT/blob/master/mingpt/model.py

class ModelNew(nn.Module):
    """
    A vanilla multi-head masked self-attention layer with a projection at the end.
    It is possible to use torch.nn.MultiheadAttention here but I am including an
    explicit implementation here to show that there is nothing too scary here.
    """

    def __init__(self, n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        # key, query, value projections for all heads, but in a batch
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        # output projection
        self.c_proj = nn.Linear(n_embd, n_embd)
        # regularization
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        # causal mask to ensure that attention is only applied to the left in the input sequence
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen))
                                     .view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    @torch.no_grad()
    def forward(self, x):
        return call([x, self.c_attn.weight, self.c_attn.bias, self.bias, self.c_proj.weight, self.c_proj.bias])[0]

batch_size = 128
max_seqlen = 1024
seq_len = 512
n_embd = 768
n_head = 8
attn_pdrop = 0.0
resid_pdrop = 0.0
