ATTEND_M = 64  # tune: 64, 128
ATTEND_N = 32  # tune: 32, 64
ATTEND_STAGES = 2  # tune: 1, 2, 3
ATTEND_REGISTERS = 168  # tune: 168, 255


@triton.jit
def attend_exactly(bad, q, k, v, mask, bias, out, heads, T, S, D, DV, q_batch, q_head, q_row, q_d, k_batch, k_head, k_row,
                   k_d, v_batch, v_head, v_row, v_d, m_batch, m_head, m_row, m_key, b_batch, b_head, b_row, b_key, o_batch,
                   o_head, o_row, scale, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_BIAS: tl.constexpr, BD: tl.constexpr,
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
            s = tl.dot(x, y, input_precision="ieee") * (scale * 1.4426950408889634)
            s = attend_scores(s, row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key, CAUSAL, HAS_MASK, HAS_BIAS)
            p, top, worth = attend_weights(s, tl.max(s, axis=1), top)
            norm = norm * worth + tl.sum(p, axis=1)
            z = tl.load(v + batch * v_batch + head * v_head + key.to(tl.int64)[:, None] * v_row + dv[None, :] * v_d,
                        mask=(key < S)[:, None] & (dv < DV)[None, :], other=0.0)
            total = total * worth[:, None] + tl.dot(p, z, input_precision="ieee")
        to = out + batch * o_batch + head * o_head + (row.to(tl.int64) * o_row)[:, None]
        tl.store(to + dv[None, :], total / norm[:, None],
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
                 causal, turned):
        (B, H, T, D), S, DV = q_shape, k_shape[2], v_shape[3]
        SP = triton.cdiv(S, ATTEND_N) * ATTEND_N
        (D1, D2), (V1, V2) = attend_widths(D), attend_widths(DV)
        self.heads, self.out_shape = B * H, (B, T, H, DV) if turned else (B, H, T, DV)
        o_strides = (T * H * DV, DV, H * DV) if turned else (H * T * DV, T * DV, DV)
        planes = (B * H * SP * (D1 + D2), B * H * SP * (V1 + V2), B * H * SP)
        programs, blocks = B * H * triton.cdiv(SP, 32), triton.cdiv(T, ATTEND_M)
        self.pairs = PlannedLaunch(
            attend_pairs, (2 * programs,), (programs, H, S, SP, D, DV, *k_strides, *v_strides, planes[2]), BR=32,
            BN=ATTEND_N, D1=D1, D2=D2, V1=V1, V2=V2)
        # Of a mask that all heads or batches share there is one.
        own = [size if stride else 1 for size, stride in zip((B, H), m_strides or (0, 0))]
        types = (torch.float16, torch.float16, torch.float32, torch.int32)
        self.room = Room(*zip(types, (*(2 * plane for plane in planes), own[0] * own[1] * blocks * 4)))
        r_strides = [4 * blocks * (own[1] if axis == 0 else 1) if size > 1 else 0 for axis, size in enumerate(own)]
        has = dict(CAUSAL=causal, HAS_MASK=m_strides is not None, HAS_BIAS=b_strides is not None)
        m_strides, b_strides = m_strides or (0, 0, 0, 0), b_strides or (0, 0, 0, 0)
        self.ranges = PlannedLaunch(attend_ranges, (blocks, *own), (T, S, *m_strides), BM=ATTEND_M, BN=ATTEND_N)
        self.tiles = PlannedLaunch(
            attend_tiles, (blocks, B * H),
            (H, T, S, SP, D, DV, *q_strides, *m_strides, *b_strides, *r_strides, *o_strides, B * H * SP, scale), **has, BM=ATTEND_M,
            BN=ATTEND_N, D1=D1, D2=D2, V1=V1, V2=V2, STAGES=ATTEND_STAGES, num_warps=ATTEND_M // 16,
            maxnreg=ATTEND_REGISTERS)
        self.exactly = PlannedLaunch(
            attend_exactly, (triton.cdiv(T, 16), B * H),
            (H, T, S, D, DV, *q_strides, *k_strides, *v_strides, *m_strides, *b_strides, *o_strides, scale), **has,
            BD=triton.next_power_of_2(max(D, 16)), BV=triton.next_power_of_2(max(DV, 16)))
        # Pairs as TMA sees them.
        self.views = [((2 * B * H * SP, D1 + D2), (D1 + D2, 1), (2 * ATTEND_N, width)) for width in (D1, D2 or D1)]
        self.views += [((2 * B * H * SP, V1 + V2), (V1 + V2, 1), (2 * ATTEND_N, width)) for width in (V1, V2 or V1)]
        self.has_mask, self.call = has["HAS_MASK"], PlannedCall(self.launches)

    def launches(self, stream, bad, room, q, k, v, mask, bias, out):
        k_pair, v_pair, inverses, ranges = self.room.at(room.address)
        found = [self.pairs.at(stream, k, v, k_pair, v_pair, inverses, bad)]
        if self.has_mask:
            found.append(self.ranges.at(stream, mask, ranges))
        pairs = (k_pair, k_pair, v_pair, v_pair)
        descriptors = [split_descriptor(part, *view) for part, view in zip(pairs, self.views)]
        return [*found, self.tiles.at(stream, q, *descriptors, inverses, ranges, mask, bias, out),
                self.exactly.at(stream, bad, q, k, v, mask, bias, out)]

    def __call__(self, q, k, v, mask, bias):
        bad = torch.zeros(self.heads, device=q.device, dtype=torch.int32)
        room = torch.empty(self.room.size, device=q.device, dtype=torch.uint8)
        out = torch.empty(self.out_shape, device=q.device)
        self.call(bad, room, q, k, v, q if mask is None else mask, q if bias is None else bias, out)
        return out


split_attention_of = functools.lru_cache(maxsize=None)(SplitAttention)


def split_attention(q, kt, v, mask, bias, scale, causal, turned):
    """softmax(scale q kt + bias) v for fp32 q [..., T, D], kt [..., D, S], v [..., S, DV] of any strides.

    `mask` (bool) is true where a key is not seen; `bias` is added to the scores. Results are [..., T, DV], and with `turned`
    [batch, T, heads, DV].
    """
    shape = (*q.shape[:-1], v.shape[-1])
    q, k, v = (x if x.dim() == 4 else x[None] for x in (q, kt.mT, v))
    scores = (*q.shape[:3], k.shape[2])
    mask = None if mask is None else mask.view(torch.uint8)
    found = split_attention_of(
        place_of(q, k, v, mask, bias), q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(),
        attend_strides(mask, scores), attend_strides(bias, scores), scale, causal, turned)
    out = found(q, k, v, mask, bias)
    return out if turned else out.view(shape)


def attend_by_library(q, kt, v, mask, bias, scale, causal, turned):
    scores = q @ kt * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        mask = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    out = torch.softmax(scores, dim=-1) @ v
    return out.transpose(1, 2).contiguous() if turned else out
