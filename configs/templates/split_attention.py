ATTEND_M = 64  # tune: 64, 128
ATTEND_N = 32  # tune: 32, 64
# Not 1: where a row is two widths (96 is 64 and 32), Triton 3.6 makes wrong code of a loop that it does not pipeline.
ATTEND_STAGES = 2  # tune: 2, 3


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
def attend_dot(xh, xl, yh, yl):
    # x y, the small products first. Tensor cores truncate, so sums of several tiles are added outside of them.
    return tl.dot(xh, yh, tl.dot(xh, yl, tl.dot(xl, yh)))


@triton.jit
def attend_rows(x_ptr, pair_ptr, inverse_ptr, bad_ptr, pid, heads, rows, all_rows, D, s_batch, s_head, s_row, s_d, plane,
                BR: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr):
    # Rows of one head times their power of two, as hi and, a plane later, lo. Zeros fill the last rows and columns. What
    # is not finite marks its head.
    groups = tl.cdiv(all_rows, BR)
    head = pid // groups
    row = pid % groups * BR + tl.arange(0, BR)
    d1 = tl.arange(0, D1)
    at = x_ptr + (head // heads).to(tl.int64) * s_batch + head % heads * s_head + row.to(tl.int64)[:, None] * s_row
    to = pair_ptr + (head.to(tl.int64) * all_rows + row)[:, None] * (D1 + D2)
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
def attend_pairs(k, v, k_pair, v_pair, inverses, bad, programs, heads, S, SP, D, DV, k_batch, k_head, k_row, k_d, v_batch,
                 v_head, v_row, v_d, k_plane, v_plane, i_plane, BR: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr,
                 V1: tl.constexpr, V2: tl.constexpr):
    # One launch for keys and values; the first `programs` have keys.
    pid = tl.program_id(0)
    if pid < programs:
        attend_rows(k, k_pair, inverses, bad, pid, heads, S, SP, D, k_batch, k_head, k_row, k_d, k_plane, BR, D1, D2)
    else:
        attend_rows(v, v_pair, inverses + i_plane, bad, pid - programs, heads, S, SP, DV, v_batch, v_head, v_row, v_d,
                    v_plane, BR, V1, V2)


@triton.jit
def attend_ranges(mask_ptr, range_ptr, T, S, m_batch, m_head, m_row, m_key, BM: tl.constexpr, BN: tl.constexpr):
    # The first tile of keys that a tile of rows needs, and the end of the last one; all where it needs none.
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    at = mask_ptr + tl.program_id(1).to(tl.int64) * m_batch + tl.program_id(2).to(tl.int64) * m_head
    first, last = S, 0
    for start in range(0, S, BN):
        key = start + tl.arange(0, BN)
        out = tl.load(at + row.to(tl.int64)[:, None] * m_row + key[None, :] * m_key,
                      mask=(row < T)[:, None] & (key < S)[None, :], other=1)
        needed = tl.min((out != 0).to(tl.int32)) == 0
        first = tl.where(needed, tl.minimum(first, start), first)
        last = tl.where(needed, start + BN, last)
    first, last = tl.where(last == 0, 0, first), tl.where(last == 0, S, last)
    to = range_ptr + 2 * ((tl.program_id(1) * tl.num_programs(2) + tl.program_id(2)) * tl.num_programs(0) + tl.program_id(0))
    tl.store(to, first)
    tl.store(to + 1, last)


@triton.jit
def attend_scores(s, row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key, CAUSAL: tl.constexpr,
                  HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr):
    inside = (row < T)[:, None] & (key < S)[None, :]
    if HAS_BIAS:
        s += tl.load(bias_at + row.to(tl.int64)[:, None] * b_row + key[None, :] * b_key, mask=inside, other=0.0)
    if HAS_MASK:
        out = tl.load(mask_at + row.to(tl.int64)[:, None] * m_row + key[None, :] * m_key, mask=inside, other=0)
        s = tl.where(out != 0, float("-inf"), s)
    if CAUSAL:
        s = tl.where(key[None, :] > row[:, None], float("-inf"), s)
    return tl.where((key < S)[None, :], s, float("-inf"))


@triton.jit
def attend_softmax(s, top, norm):
    # One step of the running softmax: numerators, the new maximum and sum, and what earlier sums are worth.
    now = tl.maximum(top, tl.max(s, axis=1))
    base = tl.where(now == float("-inf"), 0.0, now)  # nothing but masked keys so far
    p = tl.exp2((s - base[:, None]) * 1.4426950408889634)
    worth = tl.exp2((top - base) * 1.4426950408889634)
    return p, now, norm * worth + tl.sum(p, axis=1), worth


@triton.jit
def attend_tiles(q, k_pair, v_pair, inverses, ranges, mask, bias, out, heads, T, S, SP, D, DV, q_batch, q_head, q_row,
                 q_d, m_batch, m_head, m_row, m_key, b_batch, b_head, b_row, b_key, r_batch, r_head, k_plane, v_plane,
                 i_plane, scale, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, V1: tl.constexpr,
                 V2: tl.constexpr, STAGES: tl.constexpr):
    # The last tiles of rows first: with a causal mask they have most keys.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head_of_all = tl.program_id(1).to(tl.int64)
    batch, head = head_of_all // heads, head_of_all % heads
    row = block * BM + tl.arange(0, BM)
    d1, d2, v1, v2 = tl.arange(0, D1), D1 + tl.arange(0, max(D2, 16)), tl.arange(0, V1), V1 + tl.arange(0, max(V2, 16))
    at = q + batch * q_batch + head * q_head + row.to(tl.int64)[:, None] * q_row
    x1 = tl.load(at + d1[None, :] * q_d, mask=(row < T)[:, None] & (d1 < D)[None, :], other=0.0)
    largest = tl.max(tl.abs(x1), axis=1)
    if D2 > 0:
        x2 = tl.load(at + d2[None, :] * q_d, mask=(row < T)[:, None] & (d2 < D)[None, :], other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x2), axis=1))
    power = attend_power(largest)
    inverse_q = attend_inverse(power)
    q1h, q1l = attend_pair(x1 * power[:, None])
    if D2 > 0:
        q2h, q2l = attend_pair(x2 * power[:, None])
    k_at, v_at = k_pair + head_of_all * SP * (D1 + D2), v_pair + head_of_all * SP * (V1 + V2)
    inverse_at = inverses + head_of_all * SP
    mask_at, bias_at = mask + batch * m_batch + head * m_head, bias + batch * b_batch + head * b_head
    first, last = 0, S
    if HAS_MASK:
        first = tl.load(ranges + batch * r_batch + head * r_head + 2 * block)
        last = tl.load(ranges + batch * r_batch + head * r_head + 2 * block + 1)
    if CAUSAL:
        last = tl.minimum(last, (block + 1) * BM)
    top = tl.full((BM,), float("-inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    sum1 = tl.zeros((BM, V1), tl.float32)
    sum2 = tl.zeros((BM, max(V2, 16)), tl.float32)
    for start in tl.range(first, last, BN, num_stages=STAGES):
        key = start + tl.arange(0, BN)
        k_to, v_to = k_at + key[:, None] * (D1 + D2), v_at + key[:, None] * (V1 + V2)
        s = attend_dot(q1h, q1l, tl.trans(tl.load(k_to + d1[None, :])), tl.trans(tl.load(k_to + k_plane + d1[None, :])))
        if D2 > 0:
            s += attend_dot(q2h, q2l, tl.trans(tl.load(k_to + d2[None, :])),
                            tl.trans(tl.load(k_to + k_plane + d2[None, :])))
        s = s * inverse_q[:, None] * tl.load(inverse_at + key)[None, :] * scale
        s = attend_scores(s, row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key, CAUSAL, HAS_MASK, HAS_BIAS)
        p, top, norm, worth = attend_softmax(s, top, norm)
        # A value's power goes to its weight, so that a row of weights has one of its own: a large value of a key that a
        # row does not see costs this row no accuracy.
        p *= tl.load(inverse_at + i_plane + key)[None, :]
        weigh = attend_power(tl.max(p, axis=1))
        wh, wl = attend_pair(p * weigh[:, None])
        unweigh = attend_inverse(weigh)[:, None]
        sum1 = sum1 * worth[:, None] + unweigh * attend_dot(
            wh, wl, tl.load(v_to + v1[None, :]), tl.load(v_to + v_plane + v1[None, :]))
        if V2 > 0:
            sum2 = sum2 * worth[:, None] + unweigh * attend_dot(
                wh, wl, tl.load(v_to + v2[None, :]), tl.load(v_to + v_plane + v2[None, :]))
    to = out + (head_of_all * T + row)[:, None] * DV
    tl.store(to + v1[None, :], sum1 / norm[:, None], mask=(row < T)[:, None] & (v1 < DV)[None, :])
    if V2 > 0:
        tl.store(to + v2[None, :], sum2 / norm[:, None], mask=(row < T)[:, None] & (v2 < DV)[None, :])


@triton.jit
def attend_exactly(bad, q, k, v, mask, bias, out, heads, T, S, D, DV, q_batch, q_head, q_row, q_d, k_batch, k_head, k_row,
                   k_d, v_batch, v_head, v_row, v_d, m_batch, m_head, m_row, m_key, b_batch, b_head, b_row, b_key, scale,
                   CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr, BD: tl.constexpr,
                   BV: tl.constexpr):
    # Heads whose keys or values are not all finite, again, without pairs: an infinity times hi and times lo may have both
    # signs. Masked keys are visited, because zero times infinity is NaN.
    head_of_all = tl.program_id(1).to(tl.int64)
    if tl.load(bad + head_of_all) != 0:
        batch, head = head_of_all // heads, head_of_all % heads
        row, d, dv = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BD), tl.arange(0, BV)
        x = tl.load(q + batch * q_batch + head * q_head + row.to(tl.int64)[:, None] * q_row + d[None, :] * q_d,
                    mask=(row < T)[:, None] & (d < D)[None, :], other=0.0)
        mask_at, bias_at = mask + batch * m_batch + head * m_head, bias + batch * b_batch + head * b_head
        top = tl.full((16,), float("-inf"), tl.float32)
        norm = tl.zeros((16,), tl.float32)
        total = tl.zeros((16, BV), tl.float32)
        for start in range(0, S, 16):
            key = start + tl.arange(0, 16)
            y = tl.load(k + batch * k_batch + head * k_head + key.to(tl.int64)[None, :] * k_row + d[:, None] * k_d,
                        mask=(key < S)[None, :] & (d < D)[:, None], other=0.0)
            s = tl.dot(x, y, input_precision="ieee") * scale
            s = attend_scores(s, row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key, CAUSAL, HAS_MASK, HAS_BIAS)
            p, top, norm, worth = attend_softmax(s, top, norm)
            z = tl.load(v + batch * v_batch + head * v_head + key.to(tl.int64)[:, None] * v_row + dv[None, :] * v_d,
                        mask=(key < S)[:, None] & (dv < DV)[None, :], other=0.0)
            total = total * worth[:, None] + tl.dot(p, z, input_precision="ieee")
        tl.store(out + (head_of_all * T + row)[:, None] * DV + dv[None, :], total / norm[:, None],
                 mask=(row < T)[:, None] & (dv < DV)[None, :])


def attend_widths(size):
    """Two powers of two, the second one perhaps 0, that a row of so many numbers fits into: 96 is 64 and 32."""
    first = max(16, 1 << (size.bit_length() - 1))
    return first, 0 if size <= first else max(16, triton.next_power_of_2(size - first))


def attend_strides(x, like):
    """Strides of a mask or bias, broadcast to [batch, heads, T, S]; None without one."""
    return None if x is None else x.expand(like).stride()


class SplitAttention:
    """What place, sizes and strides decide of an attention."""

    def __init__(self, place, q_shape, q_strides, k_shape, k_strides, v_shape, v_strides, m_strides, b_strides, scale,
                 causal):
        (B, H, T, D), S, DV = q_shape, k_shape[2], v_shape[3]
        SP = triton.cdiv(S, ATTEND_N) * ATTEND_N
        (D1, D2), (V1, V2) = attend_widths(D), attend_widths(DV)
        self.heads, self.out_shape = B * H, (B, H, T, DV)
        planes = (B * H * SP * (D1 + D2), B * H * SP * (V1 + V2), B * H * SP)
        programs, blocks = B * H * triton.cdiv(SP, 32), triton.cdiv(T, ATTEND_M)
        self.pairs = PlannedLaunch(
            attend_pairs, (2 * programs,), (programs, H, S, SP, D, DV, *k_strides, *v_strides, *planes), BR=32, D1=D1,
            D2=D2, V1=V1, V2=V2)
        # Of a mask that all heads or batches share there is one.
        own = [size if stride else 1 for size, stride in zip((B, H), m_strides or (0, 0))]
        types = (torch.float16, torch.float16, torch.float32, torch.int32)
        self.room = Room(*zip(types, (*(2 * plane for plane in planes), own[0] * own[1] * blocks * 2)))
        r_strides = [2 * blocks * (own[1] if axis == 0 else 1) if size > 1 else 0 for axis, size in enumerate(own)]
        has = dict(CAUSAL=causal, HAS_MASK=m_strides is not None, HAS_BIAS=b_strides is not None)
        m_strides, b_strides = m_strides or (0, 0, 0, 0), b_strides or (0, 0, 0, 0)
        self.ranges = PlannedLaunch(attend_ranges, (blocks, *own), (T, S, *m_strides), BM=ATTEND_M, BN=ATTEND_N)
        self.tiles = PlannedLaunch(
            attend_tiles, (blocks, B * H),
            (H, T, S, SP, D, DV, *q_strides, *m_strides, *b_strides, *r_strides, *planes, scale), **has, BM=ATTEND_M,
            BN=ATTEND_N, D1=D1, D2=D2, V1=V1, V2=V2, STAGES=ATTEND_STAGES, num_warps=ATTEND_M // 16)
        self.exactly = PlannedLaunch(
            attend_exactly, (triton.cdiv(T, 16), B * H),
            (H, T, S, D, DV, *q_strides, *k_strides, *v_strides, *m_strides, *b_strides, scale), **has,
            BD=triton.next_power_of_2(max(D, 16)), BV=triton.next_power_of_2(max(DV, 16)))
        self.has_mask, self.call = has["HAS_MASK"], PlannedCall(self.launches)

    def launches(self, stream, bad, room, q, k, v, mask, bias, out):
        k_pair, v_pair, inverses, ranges = self.room.at(room.address)
        found = [self.pairs.at(stream, k, v, k_pair, v_pair, inverses, bad)]
        if self.has_mask:
            found.append(self.ranges.at(stream, mask, ranges))
        return [*found, self.tiles.at(stream, q, k_pair, v_pair, inverses, ranges, mask, bias, out),
                self.exactly.at(stream, bad, q, k, v, mask, bias, out)]

    def __call__(self, q, k, v, mask, bias):
        bad = torch.zeros(self.heads, device=q.device, dtype=torch.int32)
        room = torch.empty(self.room.size, device=q.device, dtype=torch.uint8)
        out = torch.empty(self.out_shape, device=q.device)
        self.call(bad, room, q, k, v, q if mask is None else mask, q if bias is None else bias, out)
        return out


split_attention_of = functools.lru_cache(maxsize=None)(SplitAttention)


def split_attention(q, kt, v, mask, bias, scale, causal):
    """softmax(scale q kt + bias) v for fp32 q [..., T, D], kt [..., D, S], v [..., S, DV] of any strides.

    `mask` (bool) is true where a key is not seen; `bias` is added to the scores.
    """
    shape = (*q.shape[:-1], v.shape[-1])
    q, k, v = (x if x.dim() == 4 else x[None] for x in (q, kt.mT, v))
    scores = (*q.shape[:3], k.shape[2])
    mask = None if mask is None else mask.view(torch.uint8)
    found = split_attention_of(
        place_of(q, k, v, mask, bias), q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(),
        attend_strides(mask, scores), attend_strides(bias, scores), scale, causal)
    return found(q, k, v, mask, bias).view(shape)


def attend_by_library(q, kt, v, mask, bias, scale, causal):
    scores = q @ kt * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
