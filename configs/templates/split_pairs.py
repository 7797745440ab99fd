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
    best = tl.zeros((BR, BK), dtype=tl.float32)
    count = tl.zeros((256,), dtype=tl.int32)
    for step in tl.range(STEPS, num_stages=3):
        k = (chunk * STEPS + step) * BK + tl.arange(0, BK)
        at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
        size = tl.abs(tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0))
        size = tl.where(size < float("inf"), size, 0.0)
        best = tl.maximum(best, size)
        if USUAL:
            groups = tl.max(tl.reshape(size, (BK // 8, 8)), axis=1).to(tl.int32, bitcast=True) >> 23
            count += tl.histogram(groups, 256)
    tl.atomic_max(top + batch * t_batch + row, tl.max(best, axis=1).to(tl.int32, bitcast=True), mask=row < R)
    if USUAL:
        tl.atomic_add(bins + tl.sum(row) * 256 + tl.arange(0, 256), count, mask=count > 0)
        split_usual(top, bins, done, tl.sum(row), chunks)


@triton.jit(do_not_specialize=["programs", "a_t", "a_steps", "b_t", "b_steps"])
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
def split_exponent(top_ptr, at, mask, TOP: tl.constexpr = 268):
    # The exponent bits of the power of two that brings the largest magnitude of a row to [2^14, 2^15), or with a TOP of
    # 267 to half of that.
    return tl.minimum(TOP - (tl.load(top_ptr + at, mask=mask, other=0) >> 23), 253)


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
def split_small(s, hi_ptr, small_ptr, to, high_to, low_to, kept):
    # hi in fp16, and in fp8 hi / 64 and 64 lo, which have the same range: their products correct that of both hi.
    hi = s.to(tl.float16)
    tl.store(hi_ptr + to, hi, mask=kept)
    large = hi.to(tl.float32)
    tl.store(small_ptr + high_to, (large * 0.015625).to(tl.float8e4nv), mask=kept)
    tl.store(small_ptr + low_to, ((s - large) * 64.0).to(tl.float8e4nv), mask=kept)


@triton.jit
def split_row(pid, src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, R, K, KP, s_batch, s_row, s_k, d_batch, d_row,
              BK: tl.constexpr, CHUNK: tl.constexpr, HIGH: tl.constexpr):
    # A whole row: first its largest magnitude, then hi and lo, while the row is still in registers or in a cache.
    row, batch = pid % R, (pid // R).to(tl.int64)
    from_row = src + batch * s_batch + row.to(tl.int64) * s_row
    k = tl.arange(0, BK)
    v = tl.load(from_row + k.to(tl.int64) * s_k, mask=k < K, other=0.0)
    best = tl.where(tl.abs(v) < float("inf"), tl.abs(v), 0.0)
    for start in range(BK, K, BK):
        k = start + tl.arange(0, BK)
        size = tl.abs(tl.load(from_row + k.to(tl.int64) * s_k, mask=k < K, other=0.0))
        best = tl.maximum(best, tl.where(size < float("inf"), size, 0.0))
    largest = tl.max(best).to(tl.int32, bitcast=True)
    tl.store(top + pid, largest)
    power = (tl.minimum((267 if CHUNK > 0 else 268) - (largest >> 23), 253) << 23).to(tl.float32, bitcast=True)
    to = batch * d_batch + row.to(tl.int64) * d_row
    for start in range(0, KP, BK):
        k = start + tl.arange(0, BK)
        if start > 0:
            v = tl.load(from_row + k.to(tl.int64) * s_k, mask=k < K, other=0.0)
        finite = tl.abs(v) < float("inf")
        split_list(~finite, (batch * R + row) * K + k, count_ptr, list_ptr)
        s = tl.where(finite, v, 0.0) * power
        if CHUNK > 0:
            small_to = 2 * to + k // CHUNK * CHUNK + k
            split_small(s, hi_ptr, lo_ptr, to + k, small_to + HIGH, small_to + (CHUNK - HIGH), k < KP)
        else:
            split_halves(s, hi_ptr, lo_ptr, to + k, k < KP)


@triton.jit
def split_pair(pid, src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, R, K, KP, s_batch, s_row, s_k, d_batch, d_row, d_k,
               BR: tl.constexpr, BK: tl.constexpr, CHUNK: tl.constexpr, HIGH: tl.constexpr):
    # Rows times their power of two, as hi + lo in fp16; with a CHUNK, hi and in fp8 both parts (`split_small`), which of
    # each chunk of numbers lie behind each other. Behind the last k come zeros. What is not finite is listed and counts
    # as zero: times hi and times lo it could be infinite with both signs.
    tiles, chunks = tl.cdiv(R, BR), KP // BK
    row = pid % tiles * BR + tl.arange(0, BR)
    k = pid // tiles % chunks * BK + tl.arange(0, BK)
    batch = (pid // tiles // chunks).to(tl.int64)
    at = batch * s_batch + row.to(tl.int64)[:, None] * s_row + k.to(tl.int64)[None, :] * s_k
    v = tl.load(src + at, mask=(row < R)[:, None] & (k < K)[None, :], other=0.0)
    finite = tl.abs(v) < float("inf")
    split_list(~finite, (batch * R + row)[:, None] * K + k[None, :], count_ptr, list_ptr)
    exponent = split_exponent(top, batch * R + row, row < R, 267 if CHUNK > 0 else 268)
    s = tl.where(finite, v, 0.0) * (exponent << 23).to(tl.float32, bitcast=True)[:, None]
    to = batch * d_batch + row.to(tl.int64)[:, None] * d_row
    if CHUNK > 0:
        small_to = 2 * to + (k // CHUNK * CHUNK + k)[None, :]
        split_small(s, hi_ptr, lo_ptr, to + k[None, :], small_to + HIGH, small_to + (CHUNK - HIGH), (row < R)[:, None])
    else:
        split_halves(s, hi_ptr, lo_ptr, to + k.to(tl.int64)[None, :] * d_k, (row < R)[:, None])


@triton.jit
def split_pairs(a, b, top_a, top_b, ah, al, bh, bl, counts, a_list, b_list, programs, M, N, K, KP, a_batch, a_m, a_k,
                b_batch, b_n, b_k, ah_batch, ah_m, ah_k, bh_batch, bh_n, bh_k, A_BR: tl.constexpr, A_BK: tl.constexpr,
                B_BR: tl.constexpr, B_BK: tl.constexpr, CHUNK: tl.constexpr):
    # One launch for both operands; the first `programs` have a. Tiles of one row are whole rows. In fp8 lie hi before lo
    # of a, and lo before hi of b.
    pid = tl.program_id(0)
    if pid < programs:
        if A_BR == 1:
            split_row(pid, a, top_a, ah, al, counts, a_list, M, K, KP, a_batch, a_m, a_k, ah_batch, ah_m, A_BK,
                      CHUNK, 0)
        else:
            split_pair(pid, a, top_a, ah, al, counts, a_list, M, K, KP, a_batch, a_m, a_k, ah_batch, ah_m, ah_k, A_BR,
                       A_BK, CHUNK, 0)
    else:
        if B_BR == 1:
            split_row(pid - programs, b, top_b, bh, bl, counts + 1, b_list, N, K, KP, b_batch, b_n, b_k, bh_batch, bh_n,
                      B_BK, CHUNK, CHUNK)
        else:
            split_pair(pid - programs, b, top_b, bh, bl, counts + 1, b_list, N, K, KP, b_batch, b_n, b_k, bh_batch, bh_n,
                       bh_k, B_BR, B_BK, CHUNK, CHUNK)


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


def split_index(count):
    """The type of indices of so many elements."""
    return torch.int32 if count < 2**31 else torch.int64


def split_shape(shape, strides, kp, turned):
    """(whether k lies side by side, the tile of a program, the shape of hi and lo) of x [batch, rows, K].

    With `turned`, k lies side by side in hi and lo even where it does not in x.
    """
    batch, rows, K = shape
    if strides[2] <= strides[1]:
        whole = K >= 512 and batch * rows >= 512  # enough rows for the device, and long ones
        tile = (1, min(2048, triton.next_power_of_2(kp))) if whole else (32, SPLIT_K)
        return True, tile, (batch, rows, kp)
    if turned:
        return True, (64, 32), (batch, rows, kp)
    return False, (64, 32), (batch, kp, triton.cdiv(rows, 8) * 8)


def split_halves_strides(shape, k_major):
    """The strides of hi and lo of that shape along batch, row and k."""
    whole, line = shape[1] * shape[2], shape[2]
    return (whole, line, 1) if k_major else (whole, 1, line)


def split_programs(batch, rows, K, tile, most=2048):
    """How many programs look for the largest of each row, about `most`, and how many tiles each of them reads."""
    groups, chunks = batch * triton.cdiv(rows, tile[0]), triton.cdiv(K, tile[1])
    steps = triton.cdiv(chunks * groups, most)
    return groups * triton.cdiv(chunks, steps), steps
