SKINNY_N = 128  # tune: 64, 128
SKINNY_STAGES = 3  # tune: 2, 3, 4


@gluon.jit
def skinny_copy(a_ptr, b_ptr, a_slot, b_slot, first, M, N, K, m0, n0, a_m, b_n, INDEX: gl.constexpr, BM: gl.constexpr,
                BN: gl.constexpr, BK: gl.constexpr, of_copies: gl.constexpr):
    # Sends for the numbers [k] of rows of a and of columns of b, which lie side by side.
    k = first + gl.arange(0, BK, layout=gl.SliceLayout(0, of_copies))
    m = m0 + gl.arange(0, BM, layout=gl.SliceLayout(1, of_copies))
    known = (m < M)[:, None] & (k < K)[None, :]
    async_copy.async_copy_global_to_shared(a_slot, a_ptr + (m[:, None] * a_m + k[None, :]), mask=known)
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(1, of_copies))
    known = (n < N)[:, None] & (k < K)[None, :]
    async_copy.async_copy_global_to_shared(b_slot, b_ptr + (n.to(INDEX)[:, None] * b_n + k[None, :]), mask=known)
    async_copy.commit_group()


@gluon.jit(do_not_specialize=["M"])
def skinny_multiply(a_ptr, b_ptr, c_ptr, out_ptr, e0, e1, e2, e3, M, N, K, a_m, b_n, c_m, c_n, alpha, beta,
                    HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, INDEX: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
                    BK: gl.constexpr, STAGES: gl.constexpr):
    # Columns of b times rows of a, in one launch: b is read once, and nothing is written but the result. Warps hold the
    # numbers of b as they multiply them; what TF32 leaves of a's lies beside them. Three of four products, small ones
    # first.
    WARPS: gl.constexpr = BN // 16
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BM, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, k_width=1)
    of_copies: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [WARPS, 1], [1, 0])
    of_tile: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
    a_slots = gl.allocate_shared_memory(gl.float32, [STAGES, BM, BK], of_tile)
    b_slots = gl.allocate_shared_memory(gl.float32, [STAGES, BN, BK], of_tile)
    lows = gl.allocate_shared_memory(gl.float32, [BM, BK], of_tile)
    blocks = gl.cdiv(M, BM)
    m0, n0 = gl.program_id(0) % blocks * BM, gl.program_id(0) // blocks * BN
    for ahead in gl.static_range(STAGES - 1):
        skinny_copy(a_ptr, b_ptr, a_slots.index(ahead), b_slots.index(ahead), ahead * BK, M, N, K, m0, n0, a_m, b_n,
                    INDEX, BM, BN, BK, of_copies)
    acc = gl.zeros([BN, BM], gl.float32, layout)
    for chunk in range(gl.cdiv(K, BK)):
        slot, later = chunk % STAGES, chunk + STAGES - 1
        async_copy.wait_group(STAGES - 2)
        b = b_slots.index(slot).load(left)
        lows.store(tf32_low(a_slots.index(slot).load(of_copies)))
        b_low = tf32_low(b)
        fence_async_shared()
        a, a_low = a_slots.index(slot).permute((1, 0)), lows.permute((1, 0))
        part = warpgroup_mma(b_low, a, gl.zeros([BN, BM], gl.float32, layout), use_acc=False, is_async=True)
        part = warpgroup_mma(b, a_low, part, is_async=True)
        part = warpgroup_mma(b, a, part, is_async=True)
        skinny_copy(a_ptr, b_ptr, a_slots.index(later % STAGES), b_slots.index(later % STAGES), later * BK, M, N, K, m0,
                    n0, a_m, b_n, INDEX, BM, BN, BK, of_copies)
        acc += warpgroup_mma_wait(0, deps=[part, b, b_low])[0]  # tensor cores truncate: sums are added outside of them
    async_copy.wait_group(0)
    value = acc
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(1, layout))
    m = m0 + gl.arange(0, BM, layout=gl.SliceLayout(0, layout))
    inside = (n < N)[:, None] & (m < M)[None, :]
    lost = gl.where(inside & ((value - value) != 0.0), 1, 0)
    if gl.max(gl.max(lost, 1), 0) > 0:  # an infinity, NaN, or too large a sum: once more, in fp32
        value = gl.zeros([BN, BM], gl.float32, layout)
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


def skinny_fits(a, b):
    side_by_side = a.dim() == 2 and a.stride(1) == 1 and b.stride(0) == 1 and a.numel() < 2**31
    return a.dtype == b.dtype == torch.float32 and side_by_side and min(*a.shape, *b.shape) > 0


class SkinnyProduct:
    """What place, sizes and strides decide of out = alpha a b + beta c of few rows, and `epilogue`."""

    def __init__(self, place, a_shape, a_strides, b_shape, b_strides, c_strides, alpha, beta, epilogue):
        (M, K), N = a_shape, b_shape[1]
        bm, bn = min(128, max(16, triton.next_power_of_2(M))), SKINNY_N
        large = max(N * b_strides[1], M * N) >= 2**31 - 2**20
        self.multiply = PlannedLaunch(
            skinny_multiply, (triton.cdiv(N, bn) * triton.cdiv(M, bm),),
            (M, N, K, a_strides[0], b_strides[1], *(c_strides or (0, 0)), alpha, beta), HAS_C=c_strides is not None,
            EPILOGUE=epilogue, INDEX=gl.int64 if large else gl.int32, BM=bm, BN=bn, BK=32, STAGES=SKINNY_STAGES,
            num_warps=bn // 16)


skinny_product_of = functools.lru_cache(maxsize=None)(SkinnyProduct)


def skinny_product(a, b, out, c=None, alpha=1.0, beta=1.0, epilogue=0, extras=()):
    """out = alpha a b + beta c for fp32 a [M, K] and b [K, N], with K side by side in both, and c [M, N]; out is contiguous.

    With `epilogue`, what `split_epilogue` makes of that.
    """
    found = skinny_product_of(
        place_of(a, b, c, out, *extras), a.shape, a.stride(), b.shape, b.stride(), None if c is None else c.stride(),
        alpha, beta, epilogue)
    found.multiply(a, b, out if c is None else c, out, *(*extras, *4 * (out,))[:4])
    return out


def skinny_mm(a, b, *, out):
    fits = skinny_fits(a, b) and out.is_contiguous()
    return skinny_product(a, b, out) if fits else torch.mm(a, b, out=out)


def skinny_addmm(c, a, b, *, beta=1, alpha=1, out):
    if not (skinny_fits(a, b) and out.is_contiguous()):
        return torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
    return skinny_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))
