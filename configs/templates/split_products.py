import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SPLIT_M = 128  # tune: 64, 128
SPLIT_N = 128  # tune: 64, 128
SPLIT_K = 32  # tune: 32, 64
SPLIT_STAGES = 4  # tune: 2, 3, 4
SPLIT_GROUP = 8  # tune: 1, 4, 8, 16
# tune if: (SPLIT_M + 2 * SPLIT_N) * SPLIT_K * SPLIT_STAGES * 4 <= 229376


@triton.jit
def split_largest(src, top, R, K, s_batch, s_row, s_k, STEPS: tl.constexpr, BR: tl.constexpr, BK: tl.constexpr):
    # top[batch, row]: the bits of the largest finite magnitude of a row; larger numbers have larger bits.
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    batch = tl.program_id(2).to(tl.int64)
    best = tl.zeros((BR,), dtype=tl.int32)
    for step in range(STEPS):
        k = (tl.program_id(1) * STEPS + step) * BK + tl.arange(0, BK)
        at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
        size = tl.abs(tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0))
        size = tl.where(size < float("inf"), size, 0.0)
        best = tl.maximum(best, tl.max(size, axis=1).to(tl.int32, bitcast=True))
    tl.atomic_max(top + batch * R + row, best, mask=row < R)


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
def split_pair(src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, R, K, s_batch, s_row, s_k, d_batch, d_row, d_k,
               BR: tl.constexpr, BK: tl.constexpr):
    # Rows times their power of two, as hi + lo in fp16. Behind the last k come zeros. What is not finite is listed and
    # counts as zero: times hi and times lo it could be infinite with both signs.
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    batch = tl.program_id(2).to(tl.int64)
    at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
    v = tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0)
    finite = tl.abs(v) < float("inf")
    split_list(~finite, (batch * R + row)[:, None] * K + k[None, :], count_ptr, list_ptr)
    power = (split_exponent(top, batch * R + row, row < R) << 23).to(tl.float32, bitcast=True)
    to = batch * d_batch + row.to(tl.int64)[:, None] * d_row + k.to(tl.int64)[None, :] * d_k
    split_halves(tl.where(finite, v, 0.0) * power[:, None], hi_ptr, lo_ptr, to, (row < R)[:, None])


@triton.jit
def split_spread(count_ptr, list_ptr, x_ptr, other_ptr, out_ptr, R, K, N, x_batch, x_row, x_k, s_batch, s_k, s_n,
                 o_batch, o_row, o_n, alpha, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    # Add what the listed numbers x[batch, row, k] contribute to out[batch, row, :]: alpha x other[batch, k, :].
    for number in range(tl.program_id(0), tl.load(count_ptr), PROGRAMS):
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
def split_inverse(top_ptr, at, mask):
    return ((254 - split_exponent(top_ptr, at, mask)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def split_write(acc, ta_ptr, tb_ptr, c_ptr, out_ptr, batch, m0, n0, M, N, c_batch, c_m, c_n, o_batch, o_m, o_n,
                alpha, beta, HAS_C: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = m0 + tl.arange(0, BM)
    n = n0 + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    inverse_a = split_inverse(ta_ptr, batch * M + m, m < M)
    value = acc * (inverse_a[:, None] * split_inverse(tb_ptr, batch * N + n, n < N)[None, :])
    m, n = m.to(tl.int64), n.to(tl.int64)
    if HAS_C:
        c = tl.load(c_ptr + batch * c_batch + m[:, None] * c_m + n[None, :] * c_n, mask=inside, other=0.0)
        value = alpha * value + beta * c
    tl.store(out_ptr + batch * o_batch + m[:, None] * o_m + n[None, :] * o_n, value, mask=inside)


@triton.jit
def split_tile(desc, row, k, plane, k_plane, K_MAJOR: tl.constexpr):
    # Rows by k of one operand, whichever of them lie side by side in memory.
    if K_MAJOR:
        return desc.load([plane + row, k])
    else:
        return desc.load([k_plane + k, row]).T


@triton.jit
def split_gemm(ah_desc, al_desc, bh_desc, bl_desc, ta_ptr, tb_ptr, c_ptr, out_ptr, M, N, KP, c_batch, c_m, c_n,
               o_batch, o_m, o_n, alpha, beta, A_K: tl.constexpr, B_K: tl.constexpr, HAS_C: tl.constexpr,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, STAGES: tl.constexpr):
    # out = alpha a b + beta c. A tile has two halves of BN columns, which share one partial sum's registers.
    batch = tl.program_id(1).to(tl.int64)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, 2 * BN)
    group = tl.program_id(0) // (GROUP * tiles_n)
    rows = tl.minimum(tiles_m - group * GROUP, GROUP)
    place = tl.program_id(0) % (GROUP * tiles_n)
    m0 = (group * GROUP + place % rows) * BM
    n0 = place // rows * (2 * BN)
    am, bn, kp = (batch * M).to(tl.int32), (batch * N).to(tl.int32), (batch * KP).to(tl.int32)
    acc0 = tl.zeros((BM, BN), dtype=tl.float32)
    acc1 = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, KP, BK, num_stages=STAGES):
        ah = split_tile(ah_desc, m0, k, am, kp, A_K)
        al = split_tile(al_desc, m0, k, am, kp, A_K)
        b0h = split_tile(bh_desc, n0, k, bn, kp, B_K)
        b0l = split_tile(bl_desc, n0, k, bn, kp, B_K)
        b1h = split_tile(bh_desc, n0 + BN, k, bn, kp, B_K)
        b1l = split_tile(bl_desc, n0 + BN, k, bn, kp, B_K)
        p = tl.dot(al, b0h.T)  # a new accumulator for each chunk of k, the small products first
        p = tl.dot(ah, b0l.T, p)
        p = tl.dot(ah, b0h.T, p)
        acc0 += p
        q = tl.dot(al, b1h.T)
        q = tl.dot(ah, b1l.T, q)
        q = tl.dot(ah, b1h.T, q)
        acc1 += q
    split_write(acc0, ta_ptr, tb_ptr, c_ptr, out_ptr, batch, m0, n0, M, N, c_batch, c_m, c_n, o_batch, o_m, o_n,
                alpha, beta, HAS_C, BM, BN)
    split_write(acc1, ta_ptr, tb_ptr, c_ptr, out_ptr, batch, m0, n0 + BN, M, N, c_batch, c_m, c_n, o_batch, o_m, o_n,
                alpha, beta, HAS_C, BM, BN)


def split_operand(x, block):
    """hi and lo of x [batch, rows, K] as descriptors, each row's largest, whether k is side by side, K, the list."""
    batch, rows, K = x.shape
    k_major = x.stride(2) <= x.stride(1)
    kp = triton.cdiv(K, SPLIT_K) * SPLIT_K
    shape = (batch, rows, kp) if k_major else (batch, kp, triton.cdiv(rows, 8) * 8)
    hi, lo = (torch.empty(shape, device=x.device, dtype=torch.float16) for _ in range(2))
    zeros = torch.zeros(batch * rows + 1, device=x.device, dtype=torch.int32)
    top, count = zeros[1:], zeros[:1]
    listed = torch.empty(x.numel(), device=x.device, dtype=torch.int32 if x.numel() < 2**31 else torch.int64)
    br, bk = (32, SPLIT_K) if k_major else (128, 16)
    row_tiles, k_tiles = triton.cdiv(rows, br), kp // bk
    steps = max(1, k_tiles * row_tiles * batch // 2048)
    split_largest[(row_tiles, triton.cdiv(k_tiles, steps), batch)](
        x, top, rows, K, *x.stride(), STEPS=steps, BR=br, BK=bk)
    d_row, d_k = (hi.stride(1), 1) if k_major else (1, hi.stride(1))
    split_pair[(row_tiles, k_tiles, batch)](
        x, top, hi, lo, count, listed, rows, K, *x.stride(), hi.stride(0), d_row, d_k, BR=br, BK=bk)
    tile = [block, SPLIT_K] if k_major else [SPLIT_K, block]
    flat = (batch * shape[1], shape[2])
    parts = (TensorDescriptor.from_tensor(part.view(flat), tile) for part in (hi, lo))
    return *parts, top, k_major, kp, (count, listed)


def split_product(a, b, out, c=None, alpha=1.0, beta=1.0):
    """out = alpha a b + beta c for fp32 a [batch, M, K], b [batch, K, N], c and out [batch, M, N] of any strides."""
    (batch, M, K), N = a.shape, b.shape[2]
    ah, al, ta, a_k, kp, a_list = split_operand(a, SPLIT_M)
    bh, bl, tb, b_k, _, b_list = split_operand(b.mT, SPLIT_N)
    c_strides = (0, 0, 0) if c is None else c.stride()
    split_gemm[(triton.cdiv(M, SPLIT_M) * triton.cdiv(N, 2 * SPLIT_N), batch)](
        ah, al, bh, bl, ta, tb, out if c is None else c, out, M, N, kp, *c_strides, *out.stride(), alpha, beta,
        A_K=a_k, B_K=b_k, HAS_C=c is not None, BM=SPLIT_M, BN=SPLIT_N, BK=SPLIT_K, GROUP=SPLIT_GROUP,
        STAGES=SPLIT_STAGES, num_warps=8 if SPLIT_M == 128 else 4)
    turned = out.mT
    for listed, x, other, into in ((a_list, a, b, out), (b_list, b.mT, a.mT, turned)):
        split_spread[(256,)](
            *listed, x, other, into, x.shape[1], K, other.shape[2], *x.stride(), *other.stride(), *into.stride(), alpha,
            PROGRAMS=256, BLOCK=1024)
    return out


def split_mm(a, b, *, out):
    return split_product(a[None], b[None], out[None])[0]


def split_addmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a[None], b[None], out[None], c.expand(out.shape)[None], float(alpha), float(beta))[0]


def split_bmm(a, b, *, out):
    return split_product(a, b, out)


def split_baddbmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))
