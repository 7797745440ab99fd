SPLIT_M = 128  # tune: 64, 128
SPLIT_N = 128  # tune: 64, 128
SPLIT_K = 32  # tune: 32, 64
SPLIT_STAGES = 4  # tune: 2, 3, 4
SPLIT_GROUP = 8  # tune: 1, 4, 8, 16
# tune if: (SPLIT_M + 2 * SPLIT_N) * SPLIT_K * SPLIT_STAGES * 4 <= 229376


@triton.jit
def split_largest(pid, src, top, t_batch, R, K, s_batch, s_row, s_k, STEPS, BR: tl.constexpr, BK: tl.constexpr):
    # top[batch, row]: the bits of the largest finite magnitude of a row; larger numbers have larger bits.
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
    tl.atomic_max(top + batch * t_batch + row, best, mask=row < R)


@triton.jit
def split_tops(a, b, top_a, top_b, programs, a_t, a_R, a_K, a_batch, a_row, a_k, a_steps, b_t, b_R, b_K, b_batch, b_row,
               b_k, b_steps, A_BR: tl.constexpr, A_BK: tl.constexpr, B_BR: tl.constexpr, B_BK: tl.constexpr):
    # One launch for both operands; the first `programs` have a.
    pid = tl.program_id(0)
    if pid < programs:
        split_largest(pid, a, top_a, a_t, a_R, a_K, a_batch, a_row, a_k, a_steps, A_BR, A_BK)
    else:
        split_largest(pid - programs, b, top_b, b_t, b_R, b_K, b_batch, b_row, b_k, b_steps, B_BR, B_BK)


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
                b_batch, b_n, b_k, ah_batch, ah_m, ah_k, bh_batch, bh_n, bh_k,
                A_BR: tl.constexpr, A_BK: tl.constexpr, B_BR: tl.constexpr, B_BK: tl.constexpr):
    pid = tl.program_id(0)
    if pid < programs:
        split_pair(pid, a, top_a, ah, al, counts, a_list, M, K, KP, a_batch, a_m, a_k, ah_batch, ah_m, ah_k, A_BR, A_BK)
    else:
        split_pair(pid - programs, b, top_b, bh, bl, counts + 1, b_list, N, K, KP, b_batch, b_n, b_k,
                   bh_batch, bh_n, bh_k, B_BR, B_BK)


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


def split_list_of(x):
    """Room for the indices of all elements of x."""
    return torch.empty(x.numel(), device=x.device, dtype=torch.int32 if x.numel() < 2**31 else torch.int64)


def split_shape(x, kp):
    """(whether k lies side by side, the tile of a program, the shape of hi and lo) of x [batch, rows, K]."""
    batch, rows, _ = x.shape
    if x.stride(2) <= x.stride(1):
        return True, (32, SPLIT_K), (batch, rows, kp)
    return False, (128, 16), (batch, kp, triton.cdiv(rows, 8) * 8)


def split_halves_of(x, k_major, shape):
    """Room for hi and lo of x, and their strides along batch, row and k."""
    hi, lo = (torch.empty(shape, device=x.device, dtype=torch.float16) for _ in range(2))
    return (hi, lo), (hi.stride(0), *((hi.stride(1), 1) if k_major else (1, hi.stride(1))))


def split_programs(batch, rows, K, tile):
    """How many programs look for the largest of each row, and how many tiles each of them reads."""
    groups, chunks = batch * triton.cdiv(rows, tile[0]), triton.cdiv(K, tile[1])
    steps = max(1, chunks * groups // 2048)
    return groups * triton.cdiv(chunks, steps), steps


def split_product(a, b, out, c=None, alpha=1.0, beta=1.0):
    """out = alpha a b + beta c for fp32 a [batch, M, K], b [batch, K, N], c and out [batch, M, N] of any strides."""
    (batch, M, K), N = a.shape, b.shape[2]
    bt, kp = b.mT, triton.cdiv(K, SPLIT_K) * SPLIT_K
    zeros = torch.zeros(batch * (M + N) + 2, device=a.device, dtype=torch.int32)
    counts, top_a, top_b = zeros[:2], zeros[2 : batch * M + 2], zeros[batch * M + 2 :]
    (a_major, a_tile, a_shape), (b_major, b_tile, b_shape) = split_shape(a, kp), split_shape(bt, kp)
    (a_pair, a_to), (b_pair, b_to) = split_halves_of(a, a_major, a_shape), split_halves_of(bt, b_major, b_shape)
    a_list, b_list = split_list_of(a), split_list_of(b)
    tiles = dict(A_BR=a_tile[0], A_BK=a_tile[1], B_BR=b_tile[0], B_BK=b_tile[1])
    a_programs, a_steps = split_programs(batch, M, K, a_tile)
    b_programs, b_steps = split_programs(batch, N, K, b_tile)
    a_chunks, b_chunks = (batch * triton.cdiv(rows, br) * (kp // bk) for rows, (br, bk) in ((M, a_tile), (N, b_tile)))
    split_tops[(a_programs + b_programs,)](
        a, bt, top_a, top_b, a_programs, M, M, K, *a.stride(), a_steps, N, N, K, *bt.stride(), b_steps, **tiles)
    split_pairs[(a_chunks + b_chunks,)](
        a, bt, top_a, top_b, *a_pair, *b_pair, counts, a_list, b_list, a_chunks, M, N, K, kp,
        *a.stride(), *bt.stride(), *a_to, *b_to, **tiles)
    descriptors = [
        TensorDescriptor.from_tensor(half.view(-1, half.shape[2]), [block, SPLIT_K] if major else [SPLIT_K, block])
        for pair, major, block in ((a_pair, a_major, SPLIT_M), (b_pair, b_major, SPLIT_N)) for half in pair]
    c_strides = (0, 0, 0) if c is None else c.stride()
    split_gemm[(triton.cdiv(M, SPLIT_M) * triton.cdiv(N, 2 * SPLIT_N), batch)](
        *descriptors, top_a, top_b, out if c is None else c, out, M, N, kp, *c_strides, *out.stride(), alpha, beta,
        A_K=a_major, B_K=b_major, HAS_C=c is not None, BM=SPLIT_M, BN=SPLIT_N, BK=SPLIT_K, GROUP=SPLIT_GROUP,
        STAGES=SPLIT_STAGES, num_warps=8 if SPLIT_M == 128 else 4)
    split_spreads[(256,)](
        counts, a_list, b_list, a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), alpha, BLOCK=1024)
    return out


def split_mm(a, b, *, out):
    return split_product(a[None], b[None], out[None])[0]


def split_addmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a[None], b[None], out[None], c.expand(out.shape)[None], float(alpha), float(beta))[0]


def split_bmm(a, b, *, out):
    return split_product(a, b, out)


def split_baddbmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))
