SKINNY_STAGES = 6  # tune: 3, 4, 6


@triton.jit
def skinny_rows(a_ptr, high_ptr, low_ptr, top_ptr, K, KP, a_m, BLOCK: tl.constexpr):
    # hi and lo of each row of a times its power of two, the bits of the row's largest finite number, and zeros behind.
    m = tl.program_id(0)
    row, to = a_ptr + m.to(tl.int64) * a_m, m.to(tl.int64) * KP
    best = tl.zeros((BLOCK,), dtype=tl.float32)
    for k0 in range(0, K, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        size = tl.abs(tl.load(row + k, mask=k < K, other=0.0))
        best = tl.maximum(best, tl.where(size < float("inf"), size, 0.0))
    top = tl.max(best).to(tl.int32, bitcast=True)
    tl.store(top_ptr + m, top)
    power = (tl.minimum(268 - (top >> 23), 253) << 23).to(tl.float32, bitcast=True)
    for k0 in range(0, KP, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        split_halves(tl.load(row + k, mask=k < K, other=0.0) * power, high_ptr, low_ptr, to + k, k < KP)


@gluon.jit
def skinny_loads(b_desc, high_desc, low_desc, b_slots, high_slots, low_slots, full, empty, m0, n0, chunks,
                 BM: gl.constexpr, STAGES: gl.constexpr):
    # One warp fills the ring.
    for chunk in range(chunks):
        slot = chunk % STAGES
        mbarrier.wait(empty.index(slot), ((chunk // STAGES) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, (128 + BM) * 128)
        for half in gl.static_range(2):
            tma.async_copy_global_to_shared(b_desc, [n0 + 64 * half, 32 * chunk], bar, b_slots.index(2 * slot + half))
        tma.async_copy_global_to_shared(high_desc, [m0, 32 * chunk], bar, high_slots.index(slot))
        tma.async_copy_global_to_shared(low_desc, [m0, 32 * chunk], bar, low_slots.index(slot))


@gluon.jit
def skinny_exponent(b_ptr, n, N, K, b_n, INDEX: gl.constexpr, layout: gl.constexpr):
    # The exponent of the largest of some numbers of each column of b, which lie side by side. A column has room for
    # 2^7 times that; what is larger becomes infinite, and is seen at the end.
    best = gl.zeros([64], gl.float32, gl.SliceLayout(1, layout))
    for part in gl.static_range(4):
        k = part * (K // 4) + gl.arange(0, 32, layout=gl.SliceLayout(0, layout))
        at = b_ptr + (n.to(INDEX)[:, None] * b_n + k[None, :])
        size = gl.abs(gl.load(at, mask=(n < N)[:, None] & (k < K)[None, :], other=0.0))
        best = gl.maximum(best, gl.max(gl.where(size < float("inf"), size, 0.0), 1))
    return gl.maximum(best.to(gl.int32, bitcast=True) >> 23, 9)


@gluon.jit
def skinny_part(WG: gl.constexpr, a_ptr, b_ptr, c_ptr, out_ptr, top_ptr, e0, e1, e2, e3, b_slots, high_slots, low_slots,
                full, empty, m0, n0, M, N, K, a_m, b_n, c_m, c_n, alpha, beta, chunks, HAS_C: gl.constexpr,
                EPILOGUE: gl.constexpr, INDEX: gl.constexpr, BM: gl.constexpr, STAGES: gl.constexpr):
    # One of two warpgroups: 64 columns of b, which it holds and splits as it multiplies them, times rows of a. While
    # one splits, the other multiplies.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BM, 16])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, k_width=2)
    n = n0 + 64 * WG + gl.arange(0, 64, layout=gl.SliceLayout(1, left))
    exponent = skinny_exponent(b_ptr, n, N, K, b_n, INDEX, left)
    power = ((262 - exponent) << 23).to(gl.float32, bitcast=True)
    acc = gl.zeros([64, BM], gl.float32, layout)
    for chunk in range(chunks):
        slot = chunk % STAGES
        mbarrier.wait(full.index(slot), (chunk // STAGES) & 1)
        b = b_slots.index(2 * slot + WG).load(left) * power[:, None]
        high = b.to(gl.float16)
        low = (b - high.to(gl.float32)).to(gl.float16)
        a_high, a_low = high_slots.index(slot).permute((1, 0)), low_slots.index(slot).permute((1, 0))
        part = gl.zeros([64, BM], gl.float32, layout)
        part = warpgroup_mma(low, a_high, part, use_acc=False, is_async=True)
        part = warpgroup_mma(high, a_low, part, is_async=True)
        part = warpgroup_mma(high, a_high, part, is_async=True)
        acc += warpgroup_mma_wait(0, deps=[part, high, low])[0]  # tensor cores truncate: sums are added outside of them
        mbarrier.arrive(empty.index(slot), count=1)
    inverse = gl.convert_layout(((exponent - 8) << 23).to(gl.float32, bitcast=True), gl.SliceLayout(1, layout))
    n = n0 + 64 * WG + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    m = m0 + gl.arange(0, BM, layout=gl.SliceLayout(0, layout))
    value = acc * split_inverse(top_ptr, m, m < M)[None, :] * inverse[:, None]
    inside = (n < N)[:, None] & (m < M)[None, :]
    lost = gl.where(inside & ((value - value) != 0.0), 1, 0)
    if gl.max(gl.max(lost, 1), 0) > 0:  # an infinity, NaN, or too large a number or sum: once more, in fp32
        value = gl.zeros([64, BM], gl.float32, layout)
        for k in range(K):
            a_k = gl.load(a_ptr + (m * a_m + k), mask=m < M, other=0.0)
            value += gl.load(b_ptr + (n.to(INDEX) * b_n + k), mask=n < N, other=0.0)[:, None] * a_k[None, :]
    value *= alpha
    if HAS_C:
        value += beta * gl.load(c_ptr + (m[None, :].to(INDEX) * c_m + n[:, None] * c_n), mask=inside, other=0.0)
    to = m[None, :].to(INDEX) * N + n[:, None]
    if EPILOGUE > 0:
        value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, to, inside, n[:, None], (n < N)[:, None])
    gl.store(out_ptr + to, value, mask=inside)


@gluon.jit(do_not_specialize=["M"])
def skinny_multiply(b_desc, high_desc, low_desc, a_ptr, b_ptr, c_ptr, out_ptr, top_ptr, e0, e1, e2, e3, M, N, K, a_m, b_n,
                    c_m, c_n, alpha, beta, HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, INDEX: gl.constexpr,
                    BM: gl.constexpr, STAGES: gl.constexpr):
    # Columns of b times rows of a. b is read once, and its pairs of fp16 are never written.
    b_slots = gl.allocate_shared_memory(gl.float32, [2 * STAGES, 64, 32], b_desc.layout)
    high_slots, low_slots = split_slots(high_desc, STAGES), split_slots(low_desc, STAGES)
    full, empty = split_ring(STAGES)
    blocks, chunks = gl.cdiv(M, BM), gl.cdiv(K, 32)
    m0, n0 = gl.program_id(0) % blocks * BM, gl.program_id(0) // blocks * 128
    gl.warp_specialize([
        (skinny_part, (0, a_ptr, b_ptr, c_ptr, out_ptr, top_ptr, e0, e1, e2, e3, b_slots, high_slots, low_slots, full,
                       empty, m0, n0, M, N, K, a_m, b_n, c_m, c_n, alpha, beta, chunks, HAS_C, EPILOGUE, INDEX, BM,
                       STAGES)),
        (skinny_part, (1, a_ptr, b_ptr, c_ptr, out_ptr, top_ptr, e0, e1, e2, e3, b_slots, high_slots, low_slots, full,
                       empty, m0, n0, M, N, K, a_m, b_n, c_m, c_n, alpha, beta, chunks, HAS_C, EPILOGUE, INDEX, BM,
                       STAGES)),
        (skinny_loads, (b_desc, high_desc, low_desc, b_slots, high_slots, low_slots, full, empty, m0, n0, chunks, BM,
                        STAGES)),
    ], [4, 1], [240, 24])


def skinny_fits(a, b):
    side_by_side = a.dim() == 2 and a.stride(1) == 1 and b.stride(0) == 1 and a.numel() < 2**31
    copied = b.stride(1) % 4 == 0 and b.data_ptr() % 16 == 0 and b.stride(1) >= b.shape[0]
    return a.dtype == b.dtype == torch.float32 and side_by_side and copied and min(*a.shape, *b.shape) > 0


class SkinnyProduct:
    """What place, sizes and strides decide of out = alpha a b + beta c of few rows, and `epilogue`."""

    def __init__(self, place, a_shape, a_strides, b_shape, b_strides, c_strides, alpha, beta, epilogue):
        (M, K), N = a_shape, b_shape[1]
        bm, kp = min(128, max(16, triton.next_power_of_2(M))), triton.cdiv(K, 8) * 8
        large = max(N * b_strides[1], M * N) >= 2**31 - 2**20
        self.a_view, self.b_view = ((M, kp), (kp, 1), (bm, 32)), ((N, K), (b_strides[1], 1), (64, 32))
        self.room = Room((torch.float16, M * kp), (torch.float16, M * kp), (torch.int32, M))
        self.rows = PlannedLaunch(skinny_rows, (M,), (K, kp, a_strides[0]), BLOCK=4096, num_warps=8)
        self.multiply = PlannedLaunch(
            skinny_multiply, (triton.cdiv(N, 128) * triton.cdiv(M, bm),),
            (M, N, K, a_strides[0], b_strides[1], *(c_strides or (0, 0)), alpha, beta), HAS_C=c_strides is not None,
            EPILOGUE=epilogue, INDEX=gl.int64 if large else gl.int32, BM=bm, STAGES=SKINNY_STAGES, num_warps=4)
        self.call = PlannedCall(self.launches)

    def launches(self, stream, room, a, b, c, out, *extras):
        high, low, top = self.room.at(room.address)
        descriptors = [split_descriptor(b, *self.b_view)] + [split_descriptor(one, *self.a_view) for one in (high, low)]
        return [self.rows.at(stream, a, high, low, top),
                self.multiply.at(stream, *descriptors, a, b, c, out, top, *extras)]


skinny_product_of = functools.lru_cache(maxsize=None)(SkinnyProduct)


def skinny_product(a, b, out, c=None, alpha=1.0, beta=1.0, epilogue=0, extras=()):
    """out = alpha a b + beta c for fp32 a [M, K] and b [K, N], with K side by side in both, and c [M, N]; out is contiguous.

    With `epilogue`, what `split_epilogue` makes of that.
    """
    found = skinny_product_of(
        place_of(a, b, c, out, *extras), a.shape, a.stride(), b.shape, b.stride(), None if c is None else c.stride(),
        alpha, beta, epilogue)
    room = torch.empty(found.room.size, device=a.device, dtype=torch.uint8)
    found.call(room, a, b, out if c is None else c, out, *(*extras, *4 * (out,))[:4])
    return out


def skinny_mm(a, b, *, out):
    fits = skinny_fits(a, b) and out.is_contiguous()
    return skinny_product(a, b, out) if fits else torch.mm(a, b, out=out)


def skinny_addmm(c, a, b, *, beta=1, alpha=1, out):
    if not (skinny_fits(a, b) and out.is_contiguous()):
        return torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
    return skinny_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))
