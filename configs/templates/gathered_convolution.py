GATHER_N = 64  # tune: 16, 32, 64
GATHER_K = 32  # tune: 16, 32, 64
GATHER_WARPS = 8  # tune: 4, 8
GATHER_EACH = 2  # tune: 1, 2, 3, 4
# tune GATHER_N, GATHER_K, GATHER_WARPS, GATHER_EACH if: STAGED == 0


@gluon.jit
def gather_parts(v):
    # Three numbers of 8 bits, which have the range of fp32. Of an infinity they make NaN.
    high = v.to(gl.bfloat16)
    rest = v - high.to(gl.float32)
    middle = rest.to(gl.bfloat16)
    return high, middle, (rest - middle.to(gl.float32)).to(gl.bfloat16)


@gluon.jit
def gather_tap(k, U_D: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr):
    # The channel of a number of a filter, and its place.
    return k // (U_D * U_H * U_W), k // (U_H * U_W) % U_D, k // U_W % U_H, k % U_W


@gluon.jit
def gather_filters(w_ptr, parts, n0, N, K: gl.constexpr, CHUNKS: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
                   WARPS: gl.constexpr):
    # All that a program's filters need, once, in shared memory.
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [WARPS, 1], [1, 0])
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(1, layout))
    for chunk in range(CHUNKS):
        k = chunk * BK + gl.arange(0, BK, layout=gl.SliceLayout(0, layout))
        w = gl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        high, middle, low = gather_parts(w)
        parts.index(3 * chunk).store(high)
        parts.index(3 * chunk + 1).store(middle)
        parts.index(3 * chunk + 2).store(low)
    fence_async_shared()
    tl.debug_barrier()


@gluon.jit
def gather_start(m, OD, OH, OW, x_n, x_d, x_h, x_w, S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr,
                 P_D: gl.constexpr, P_H: gl.constexpr, P_W: gl.constexpr, INDEX: gl.constexpr):
    # The first number that an output reads: its address, and its place in the image.
    d = m // (OW * OH) % OD * S_D - P_D
    h = m // OW % OH * S_H - P_H
    w = m % OW * S_W - P_W
    n = m // (OW * OH * OD)
    return n.to(INDEX) * x_n + d.to(INDEX) * x_d + (h * x_h + w * x_w), d, h, w


@gluon.jit
def gather_numbers(x_ptr, start, d, h, w, real, k, D, H, W, x_c, x_d, x_h, x_w, K: gl.constexpr, U_D: gl.constexpr,
                   U_H: gl.constexpr, U_W: gl.constexpr, A_D: gl.constexpr, A_H: gl.constexpr, A_W: gl.constexpr,
                   PADDED: gl.constexpr, INDEX: gl.constexpr):
    # Of each output [m] the numbers [k] that it reads, where they lie.
    c, k_d, k_h, k_w = gather_tap(k, U_D, U_H, U_W)
    at = start[:, None] + (c.to(INDEX) * x_c + (k_d * A_D).to(INDEX) * x_d + (k_h * A_H * x_h + k_w * A_W * x_w))[None, :]
    known = real[:, None] & (k < K)[None, :]
    if PADDED:
        at_d, at_h, at_w = (d[:, None] + (k_d * A_D)[None, :], h[:, None] + (k_h * A_H)[None, :],
                            w[:, None] + (k_w * A_W)[None, :])
        known = known & (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W)
    return gl.load(x_ptr + at, mask=known, other=0.0)


@gluon.jit
def gather_multiply(x_ptr, w_ptr, bias_ptr, out_ptr, e0, e1, e2, e3, M, N, D, H, W, OD, OH, OW, x_n, x_c, x_d, x_h, x_w,
                    o_n, o_c, K: gl.constexpr, U_D: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr,
                    S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr,
                    P_W: gl.constexpr, A_D: gl.constexpr, A_H: gl.constexpr, A_W: gl.constexpr, PADDED: gl.constexpr,
                    HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr, INDEX: gl.constexpr, PARTS: gl.constexpr,
                    CHUNKS: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WARPS: gl.constexpr):
    # A product of outputs and filters whose left side is never written: each warp reads its numbers as wgmma wants them,
    # and splits them. Six of nine products, small ones first. Tensor cores truncate, so sums are added
    # outside of them.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)
    BM: gl.constexpr = 16 * WARPS
    parts = gl.allocate_shared_memory(gl.bfloat16, [3 * CHUNKS, BN, BK], PARTS)
    blocks = gl.cdiv(N, BN)
    n0 = gl.program_id(0) % blocks * BN
    gather_filters(w_ptr, parts, n0, N, K, CHUNKS, BN, BK, WARPS)
    for tile in range(gl.program_id(0) // blocks, gl.cdiv(M, BM), gl.num_programs(0) // blocks):
        m = tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, operand))
        start, d, h, w = gather_start(m, OD, OH, OW, x_n, x_d, x_h, x_w, S_D, S_H, S_W, P_D, P_H, P_W, INDEX)
        acc = gl.zeros([BM, BN], gl.float32, layout)
        small = gl.zeros([BM, BN], gl.float32, layout)
        for chunk in range(CHUNKS):
            k = chunk * BK + gl.arange(0, BK, layout=gl.SliceLayout(0, operand))
            x = gather_numbers(x_ptr, start, d, h, w, m < M, k, D, H, W, x_c, x_d, x_h, x_w, K, U_D, U_H, U_W, A_D, A_H,
                               A_W, PADDED, INDEX)
            high, middle, low = gather_parts(x)
            w1 = parts.index(3 * chunk).permute((1, 0))
            w2 = parts.index(3 * chunk + 1).permute((1, 0))
            w3 = parts.index(3 * chunk + 2).permute((1, 0))
            small = warpgroup_mma(low, w1, small, is_async=True)
            small = warpgroup_mma(high, w3, small, is_async=True)
            small = warpgroup_mma(middle, w2, small, is_async=True)
            small = warpgroup_mma(middle, w1, small, is_async=True)
            small = warpgroup_mma(high, w2, small, is_async=True)
            p = warpgroup_mma(high, w1, gl.zeros([BM, BN], gl.float32, layout), use_acc=False, is_async=True)
            small, p = warpgroup_mma_wait(0, deps=[small, p])
            acc += p
        value = acc + small
        m = tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
        n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
        inside = (m < M)[:, None] & (n < N)[None, :]
        lost = gl.where(inside & ((value - value) != 0.0), 1, 0)
        if gl.max(gl.max(lost, 1), 0) > 0:  # an infinity, NaN, or too large for bf16: once more, in fp32
            value = gl.zeros([BM, BN], gl.float32, layout)
            again, d2, h2, w2 = gather_start(m, OD, OH, OW, x_n, x_d, x_h, x_w, S_D, S_H, S_W, P_D, P_H, P_W, INDEX)
            for at in range(K):
                one = at + gl.arange(0, 1, layout=gl.SliceLayout(0, layout))
                x1 = gather_numbers(x_ptr, again, d2, h2, w2, m < M, one, D, H, W, x_c, x_d, x_h, x_w, K, U_D, U_H, U_W,
                                    A_D, A_H, A_W, PADDED, INDEX)
                value += x1 * gl.load(w_ptr + n * K + at, mask=n < N, other=0.0)[None, :]
        if HAS_BIAS:
            value += gl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
        pixels = OD * OH * OW
        to = (m // pixels).to(INDEX)[:, None] * o_n + n.to(INDEX)[None, :] * o_c + (m % pixels)[:, None]
        if EPILOGUE > 0:
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, to, inside, n[None, :], (n < N)[None, :])
        gl.store(out_ptr + to, value, mask=inside)


def gather_blocks(filters, numbers):
    # Filters of a program and bytes of their parts: as many filters as fit into shared memory.
    kp = triton.cdiv(numbers, GATHER_K) * GATHER_K
    bn = max(16, min(GATHER_N, triton.next_power_of_2(filters)))
    while bn > 16 and 6 * kp * bn > 200_000:
        bn //= 2
    return bn, 6 * kp * bn


def gather_fits(x, weight, transposed, groups):
    # With more channels, pairs that are written once pay.
    few = weight.shape[1] <= 8 and gather_blocks(weight.shape[0], weight[0].numel())[1] <= 200_000
    plain = x.is_contiguous() and x[0].numel() < 2**31 and x.dim() > 2 and x.numel() > 0
    return x.dtype == weight.dtype == torch.float32 and not transposed and groups == 1 and few and plain


class GatheredConvolution:
    """What place, sizes and strides decide of a convolution of few channels, in 1, 2 or 3 dimensions, and `epilogue`."""

    def __init__(self, place, x_shape, w_shape, has_bias, stride, padding, dilation, epilogue):
        batch, (filters, channels) = x_shape[0], w_shape[:2]
        sizes, taps, out_sizes, step, pad, apart = conv_sizes(x_shape, w_shape, stride, padding, dilation)
        self.out_shape = (batch, filters, *out_sizes[5 - len(x_shape):])
        numbers = channels * taps[0] * taps[1] * taps[2]
        bn, held = gather_blocks(filters, numbers)
        pixels = out_sizes[0] * out_sizes[1] * out_sizes[2]
        blocks, tiles = triton.cdiv(filters, bn), triton.cdiv(batch * pixels, 16 * GATHER_WARPS)
        each = min(GATHER_EACH, max(1, 220_000 // held))
        count = torch.cuda.get_device_properties(place[0]).multi_processor_count * each
        large = max(batch * channels * sizes[0] * sizes[1] * sizes[2], batch * filters * pixels) >= 2**31 - 2**20
        full = torch.empty(1, channels, *sizes, device="meta").stride()
        names = ("U_D", "U_H", "U_W", "S_D", "S_H", "S_W", "P_D", "P_H", "P_W", "A_D", "A_H", "A_W")
        self.multiply = PlannedLaunch(
            gather_multiply, (blocks * max(1, min(tiles, count // blocks)),),
            (batch * pixels, filters, *sizes, *out_sizes, *full, filters * pixels, pixels), K=numbers,
            **dict(zip(names, (*taps, *step, *pad, *apart))), PADDED=any(pad), HAS_BIAS=has_bias, EPILOGUE=epilogue,
            INDEX=gl.int64 if large else gl.int32,
            PARTS=gl.NVMMASharedLayout.get_default_for([bn, GATHER_K], gl.bfloat16),
            CHUNKS=triton.cdiv(numbers, GATHER_K), BN=bn, BK=GATHER_K, WARPS=GATHER_WARPS, num_warps=GATHER_WARPS)


gathered_convolution_of = functools.lru_cache(maxsize=None)(GatheredConvolution)


def gathered_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                         extras=()):
    """As extern_kernels.convolution, for few channels, in 1, 2 or 3 dimensions; with `epilogue`, as the others."""
    if not gather_fits(x, weight, transposed, groups):
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    weight = weight.contiguous()
    if STAGED and all(apart == 1 for apart in dilation):
        staged = staged_convolution_of(x.device, x.shape, weight.shape, tuple(stride), tuple(padding), epilogue)
        if staged is not None:
            # Four numbers are read at once.
            return staged(x.clone() if x.data_ptr() % 16 else x, weight, bias, extras)
    found = gathered_convolution_of(
        place_of(x, weight, bias, *extras), x.shape, weight.shape, bias is not None, tuple(stride), tuple(padding),
        tuple(dilation), epilogue)
    out = torch.empty(found.out_shape, device=x.device, dtype=torch.float32)
    found.multiply(x, weight, out if bias is None else bias, out, *(*extras, *4 * (out,))[:4])
    return out
