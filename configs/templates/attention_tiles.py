@gluon.jit
def attend_along(x, like):
    # A number for each row, in the layout of the rows of `like`.
    return gl.convert_layout(x, gl.SliceLayout(1, like.type.layout))


@gluon.jit
def attend_query(q, row, T, D, q_row, q_d, FIRST: gl.constexpr, WIDTH: gl.constexpr, WARPS: gl.constexpr):
    # Numbers from FIRST on of rows of q; zeros outside.
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [128 // WIDTH, WIDTH // 4], [WARPS, 1], [1, 0])
    row = gl.convert_layout(row, gl.SliceLayout(1, layout))
    d = FIRST + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    return gl.load(q + row.to(gl.int64)[:, None] * q_row + d[None, :] * q_d,
                   mask=(row < T)[:, None] & (d < D)[None, :], other=0.0)


@gluon.jit
def attend_keep(x, power, slots):
    # x times a power of two for each row, as hi and lo in shared memory.
    hi, lo = attend_pair(x * attend_along(power, x)[:, None])
    slots.index(0).store(hi)
    slots.index(1).store(lo)


@gluon.jit
def attend_start(number, opened, before, first, open_first, open_last, BN: gl.constexpr):
    # The first key of a tile: open ones are visited first, then those before and behind them.
    other = number - opened
    start = gl.where(other < before, first + other * BN, open_last + (other - before) * BN)
    return gl.where(other < 0, open_first + number * BN, start)


@gluon.jit
def attend_fetch(start, slot, bars, there, row, desc1, desc2, slots1, slots2, BN: gl.constexpr, W1: gl.constexpr,
                 W2: gl.constexpr):
    # Sends for a tile of keys or values, hi and lo.
    bar, at = bars.index(slot), 2 * (row + start)
    mbarrier.expect(bar, BN * (W1 + W2) * 4, pred=there)
    tma.async_copy_global_to_shared(desc1, [at, 0], bar, slots1.index(slot), pred=there)
    if W2 > 0:
        tma.async_copy_global_to_shared(desc2, [at, W1], bar, slots2.index(slot), pred=there)


@gluon.jit
def attend_halves(slots, slot, BN: gl.constexpr):
    # hi and lo of a tile.
    return slots.index(slot).slice(0, BN), slots.index(slot).slice(BN, BN)


@gluon.jit
def attend_values(wh, wl, vh, vl, sum, worth, unweigh):
    # What earlier sums are worth, and a tile's weighted values, the small products first. Tensor cores truncate, so sums
    # of several tiles are added outside of them.
    layout: gl.constexpr = sum.type.layout
    to: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    high, low = gl.convert_layout(wh, to), gl.convert_layout(wl, to)
    t = warpgroup_mma(low, vh, gl.zeros(sum.shape, gl.float32, layout), use_acc=False, is_async=True)
    t = warpgroup_mma(high, vl, t, is_async=True)
    t = warpgroup_mma(high, vh, t, is_async=True)
    t = warpgroup_mma_wait(0, deps=[t])
    return sum * attend_along(worth, sum)[:, None] + t * attend_along(unweigh, sum)[:, None]


@gluon.jit
def attend_keys(slot, q1, q2, k1, k2, layout: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, D2: gl.constexpr):
    # Products of rows and a tile of keys, the small ones first.
    kh, kl = attend_halves(k1, slot, BN)
    kh, kl = kh.permute((1, 0)), kl.permute((1, 0))
    s = warpgroup_mma(q1.index(1), kh, gl.zeros([BM, BN], gl.float32, layout), use_acc=False, is_async=True)
    s = warpgroup_mma(q1.index(0), kl, s, is_async=True)
    if D2 > 0:
        k2h, k2l = attend_halves(k2, slot, BN)
        k2h, k2l = k2h.permute((1, 0)), k2l.permute((1, 0))
        s = warpgroup_mma(q2.index(1), k2h, s, is_async=True)
        s = warpgroup_mma(q2.index(0), k2l, s, is_async=True)
        s = warpgroup_mma(q2.index(0), k2h, s, is_async=True)
    return warpgroup_mma(q1.index(0), kh, s, is_async=True)


@gluon.jit
def attend_write(out, row, o_row, T, DV, sum, norm, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    dv = FIRST + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, sum.type.layout))
    row = attend_along(row, sum)
    gl.store(out + (row.to(gl.int64) * o_row)[:, None] + dv[None, :], sum / attend_along(norm, sum)[:, None],
             mask=(row < T)[:, None] & (dv < DV)[None, :])


@gluon.jit
def attend_tiles(q, k1, k2, v1, v2, inverses, ranges, mask, bias, out, heads, T, S, SP, D, DV, q_batch, q_head, q_row,
                 q_d, m_batch, m_head, m_row, m_key, b_batch, b_head, b_row, b_key, r_batch, r_head, o_batch, o_head,
                 o_row, plane, scale, CAUSAL: gl.constexpr, HAS_MASK: gl.constexpr, HAS_BIAS: gl.constexpr,
                 BM: gl.constexpr, BN: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, V1: gl.constexpr,
                 V2: gl.constexpr, STAGES: gl.constexpr):
    # The last tiles of rows first: with a causal mask they have most keys.
    WARPS: gl.constexpr = BM // 16
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16])
    layout1: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, V1, 16])
    layout2: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, max(V2, 16), 16])
    block = gl.num_programs(0) - 1 - gl.program_id(0)
    head_of_all = gl.program_id(1)
    batch, head = (head_of_all // heads).to(gl.int64), (head_of_all % heads).to(gl.int64)
    first, last = 0, S
    open_first, open_last = 0, S // BN * BN
    if HAS_MASK:
        at = ranges + batch * r_batch + head * r_head + 4 * block
        first, last = gl.load(at), gl.load(at + 1)
        open_first, open_last = gl.load(at + 2), gl.load(at + 3)
    if CAUSAL:
        last = gl.minimum(last, (block + 1) * BM)
        open_last = gl.minimum(open_last, block * BM // BN * BN)
    is_open = open_first < open_last
    open_first, open_last = gl.where(is_open, open_first, first), gl.where(is_open, open_last, first)
    opened, before = (open_last - open_first) // BN, (open_first - first) // BN
    count = opened + before + gl.cdiv(last - open_last, BN)

    k1_slots = gl.allocate_shared_memory(gl.float16, [STAGES, 2 * BN, D1], k1.layout)
    v1_slots = gl.allocate_shared_memory(gl.float16, [STAGES, 2 * BN, V1], v1.layout)
    q1_slots = gl.allocate_shared_memory(
        gl.float16, [2, BM, D1], gl.NVMMASharedLayout.get_default_for([BM, D1], gl.float16))
    k2_slots, v2_slots, q2_slots = k1_slots, v1_slots, q1_slots
    if D2 > 0:
        k2_slots = gl.allocate_shared_memory(gl.float16, [STAGES, 2 * BN, D2], k2.layout)
        q2_slots = gl.allocate_shared_memory(
            gl.float16, [2, BM, D2], gl.NVMMASharedLayout.get_default_for([BM, D2], gl.float16))
    if V2 > 0:
        v2_slots = gl.allocate_shared_memory(gl.float16, [STAGES, 2 * BN, V2], v2.layout)
    k_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_bars.index(stage), count=1)
        mbarrier.init(v_bars.index(stage), count=1)
    fence_async_shared()
    gl.thread_barrier()
    of_head = head_of_all * SP
    for stage in gl.static_range(STAGES):
        start = attend_start(stage, opened, before, first, open_first, open_last, BN)
        attend_fetch(start, stage, k_bars, stage < count, of_head, k1, k2, k1_slots, k2_slots, BN, D1, D2)
        attend_fetch(start, stage, v_bars, stage < count, of_head, v1, v2, v1_slots, v2_slots, BN, V1, V2)

    row = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    own = q + batch * q_batch + head * q_head
    x1 = attend_query(own, row, T, D, q_row, q_d, 0, D1, WARPS)
    largest = gl.convert_layout(gl.max(gl.abs(x1), axis=1), gl.SliceLayout(1, layout))
    if D2 > 0:
        x2 = attend_query(own, row, T, D, q_row, q_d, D1, D2, WARPS)
        largest = gl.maximum(largest, gl.convert_layout(gl.max(gl.abs(x2), axis=1), gl.SliceLayout(1, layout)))
        attend_keep(x2, attend_power(largest), q2_slots)
    attend_keep(x1, attend_power(largest), q1_slots)
    inverse_q = attend_inverse(attend_power(largest))
    fence_async_shared()
    gl.thread_barrier()

    inverse_at = inverses + head_of_all.to(gl.int64) * SP
    mask_at, bias_at = mask + batch * m_batch + head * m_head, bias + batch * b_batch + head * b_head
    top = gl.full([BM], float("-inf"), gl.float32, gl.SliceLayout(1, layout))
    norm = gl.full([BM], 0.0, gl.float32, gl.SliceLayout(1, layout))
    sum1 = gl.zeros([BM, V1], gl.float32, layout1)
    sum2 = gl.zeros([BM, max(V2, 16)], gl.float32, layout2)
    # Scores are logarithms to base 2. Of their factors, only a power of two is multiplied in last: that product is exact,
    # so one instruction that multiplies and subtracts the largest score gives zero for it, however large it is.
    scale_k = scale * 1.4426950408889634
    for part in gl.static_range(2):
        for number in range(opened * part, count if part else opened):
            slot, phase, later = number % STAGES, (number // STAGES) & 1, number + STAGES
            start = attend_start(number, opened, before, first, open_first, open_last, BN)
            next_start = attend_start(later, opened, before, first, open_first, open_last, BN)
            key = start + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
            inverse_k, inverse_v = gl.load(inverse_at + key) * scale_k, gl.load(inverse_at + plane + key)
            mbarrier.wait(k_bars.index(slot), phase)
            s = attend_keys(slot, q1_slots, q2_slots, k1_slots, k2_slots, layout, BM, BN, D2)
            s = warpgroup_mma_wait(0, deps=[s]) * inverse_k[None, :]
            gl.thread_barrier()
            attend_fetch(next_start, slot, k_bars, later < count, of_head, k1, k2, k1_slots, k2_slots, BN, D1, D2)
            if part == 0 and not HAS_BIAS:
                # Each row sees each key.
                p, top, worth = attend_scaled_weights(s, inverse_q, gl.max(s, axis=1), top)
            else:
                s = attend_scores(s * inverse_q[:, None], row, key, mask_at, bias_at, T, S, m_row, m_key, b_row, b_key,
                                CAUSAL and part > 0, HAS_MASK and part > 0, HAS_BIAS)
                p, top, worth = attend_weights(s, gl.max(s, axis=1), top)
            norm = norm * worth + gl.sum(p, axis=1)
            # A value's power goes to its weight, so that a row of weights has one of its own: a large value of a key
            # that a row does not see costs this row no accuracy.
            p *= inverse_v[None, :]
            weigh = attend_power(gl.max(p, axis=1))
            wh, wl = attend_pair(p * weigh[:, None])
            unweigh = attend_inverse(weigh)
            mbarrier.wait(v_bars.index(slot), phase)
            vh, vl = attend_halves(v1_slots, slot, BN)
            sum1 = attend_values(wh, wl, vh, vl, sum1, worth, unweigh)
            if V2 > 0:
                v2h, v2l = attend_halves(v2_slots, slot, BN)
                sum2 = attend_values(wh, wl, v2h, v2l, sum2, worth, unweigh)
            gl.thread_barrier()
            attend_fetch(next_start, slot, v_bars, later < count, of_head, v1, v2, v1_slots, v2_slots, BN, V1, V2)
    to = out + batch * o_batch + head * o_head
    attend_write(to, row, o_row, T, DV, sum1, norm, 0, V1)
    if V2 > 0:
        attend_write(to, row, o_row, T, DV, sum2, norm, V1, V2)
