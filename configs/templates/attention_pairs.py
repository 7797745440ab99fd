@triton.jit
def attend_power(top):
    # The power of two that brings a magnitude to [2^14, 2^15).
    bits = tl.minimum(268 - (top.to(tl.int32, bitcast=True) >> 23), 253)
    return (bits << 23).to(tl.float32, bitcast=True)


@triton.jit
def attend_inverse(power):
    return ((254 - (power.to(tl.int32, bitcast=True) >> 23)) << 23).to(tl.float32, bitcast=True)


@triton.jit
def attend_pair(x):
    hi = x.to(tl.float16)
    return hi, (x - hi.to(tl.float32)).to(tl.float16)


@triton.jit
def attend_rows(x_ptr, pair_ptr, inverse_ptr, bad_ptr, pid, heads, rows, all_rows, D, s_batch, s_head, s_row, s_d,
                BR: tl.constexpr, BN: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr):
    # Rows of one head times their power of two: of each tile of BN keys hi, and then lo. Zeros fill the last rows and
    # columns. What is not finite marks its head.
    groups = tl.cdiv(all_rows, BR)
    head = pid // groups
    row = pid % groups * BR + tl.arange(0, BR)
    d1 = tl.arange(0, D1)
    at = x_ptr + (head // heads).to(tl.int64) * s_batch + head % heads * s_head + row.to(tl.int64)[:, None] * s_row
    to = pair_ptr + (2 * head.to(tl.int64) * all_rows + row // BN * BN + row)[:, None] * (D1 + D2)
    plane = BN * (D1 + D2)
    x1 = tl.load(at + d1[None, :] * s_d, mask=(row < rows)[:, None] & (d1 < D)[None, :], other=0.0)
    top = tl.max(tl.abs(x1), axis=1)
    finite = tl.min((tl.abs(x1) < float("inf")).to(tl.int32))
    if D2 > 0:
        d2 = D1 + tl.arange(0, D2)
        x2 = tl.load(at + d2[None, :] * s_d, mask=(row < rows)[:, None] & (d2 < D)[None, :], other=0.0)
        top = tl.maximum(top, tl.max(tl.abs(x2), axis=1))
        finite = tl.minimum(finite, tl.min((tl.abs(x2) < float("inf")).to(tl.int32)))
    power = attend_power(top)
    inside = (row < all_rows)[:, None]
    hi, lo = attend_pair(x1 * power[:, None])
    tl.store(to + d1[None, :], hi, mask=inside)
    tl.store(to + plane + d1[None, :], lo, mask=inside)
    if D2 > 0:
        hi, lo = attend_pair(x2 * power[:, None])
        tl.store(to + d2[None, :], hi, mask=inside)
        tl.store(to + plane + d2[None, :], lo, mask=inside)
    tl.store(inverse_ptr + head * all_rows + row, attend_inverse(power), mask=row < all_rows)
    if finite == 0:
        tl.store(bad_ptr + head, 1)


@triton.jit
def attend_pairs(k, v, k_pair, v_pair, inverses, bad, programs, heads, S, SP, D, DV, k_batch, k_head, k_row, k_d,
                 v_batch, v_head, v_row, v_d, i_plane, BR: tl.constexpr, BN: tl.constexpr, D1: tl.constexpr,
                 D2: tl.constexpr, V1: tl.constexpr, V2: tl.constexpr):
    # One launch for keys and values; the first `programs` have keys.
    pid = tl.program_id(0)
    if pid < programs:
        attend_rows(k, k_pair, inverses, bad, pid, heads, S, SP, D, k_batch, k_head, k_row, k_d, BR, BN, D1, D2)
    else:
        attend_rows(v, v_pair, inverses + i_plane, bad, pid - programs, heads, S, SP, DV, v_batch, v_head, v_row, v_d,
                    BR, BN, V1, V2)


@triton.jit
def attend_ranges(mask_ptr, range_ptr, T, S, m_batch, m_head, m_row, m_key, BM: tl.constexpr, BN: tl.constexpr):
    # Of each tile of rows: the first tile of keys that it needs, the end of the last one (all where it needs none), and
    # the first run of tiles of which each row sees each key.
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = mask_ptr + tl.program_id(1).to(tl.int64) * m_batch + tl.program_id(2).to(tl.int64) * m_head
    first, last, open_first, open_last = S, 0, 0, 0
    for start in range(0, S, BN):
        key = start + tl.arange(0, BN)
        inside = (row < T)[:, None] & (key < S)[None, :]
        out = tl.load(at + row.to(tl.int64)[:, None] * m_row + key[None, :] * m_key, mask=inside, other=1)
        needed = tl.min((out != 0).to(tl.int32)) == 0
        first = tl.where(needed, tl.minimum(first, start), first)
        last = tl.where(needed, start + BN, last)
        is_open = (tl.max((inside & (out != 0)).to(tl.int32)) == 0) & (start + BN <= S)
        open_first = tl.where(is_open & (open_last == 0), start, open_first)
        open_last = tl.where(is_open & ((open_last == 0) | (open_last == start)), start + BN, open_last)
    first, last = tl.where(last == 0, 0, first), tl.where(last == 0, S, last)
    place = tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)
    to = range_ptr + 4 * (place * tl.num_programs(0) + tl.program_id(0))
    tl.store(to, first)
    tl.store(to + 1, last)
    tl.store(to + 2, open_first)
    tl.store(to + 3, open_last)


@triton.jit
def attend_scores(s, row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key, CAUSAL: tl.constexpr,
                  HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr):
    inside = (row < T)[:, None] & (key < S)[None, :]
    if HAS_BIAS:
        bias = tl.load(bias_at + row.to(tl.int64)[:, None] * b_row + key[None, :] * b_key, mask=inside, other=0.0)
        s += bias * 1.4426950408889634
    if HAS_MASK:
        out = tl.load(mask_at + row.to(tl.int64)[:, None] * m_row + key[None, :] * m_key, mask=inside, other=0)
        s = tl.where(out != 0, float("-inf"), s)
    if CAUSAL:
        s = tl.where(key[None, :] > row[:, None], float("-inf"), s)
    return tl.where((key < S)[None, :], s, float("-inf"))


@triton.jit
def attend_base(largest, top):
    # The new maximum of scores, and what numerators are relative to.
    now = tl.maximum(top, largest)
    return now, tl.where(now == float("-inf"), 0.0, now)  # nothing but masked keys so far


@triton.jit
def attend_weights(s, largest, top):
    # One step of the running softmax of scores to base 2: numerators, the new maximum, and what earlier sums are worth.
    now, base = attend_base(largest, top)
    return tl.exp2(s - base[:, None]), now, tl.exp2(top - base)


@triton.jit
def attend_scaled_weights(s, scale, largest, top):
    # The same for scores that have yet to be multiplied by a power of two for each row.
    now, base = attend_base(largest * scale, top)
    return tl.exp2(s * scale[:, None] - base[:, None]), now, tl.exp2(top - base)
