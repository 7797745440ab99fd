SMALL_N = 64  # tune: 32, 64, 128
SMALL_M = 64  # tune: 32, 64, 128
SMALL_K = 32  # tune: 16, 32, 64
SMALL_STAGES = 3  # tune: 2, 3, 4
SMALL_WARPS = 4  # tune: 4, 8
SMALL_PARTS = 3  # tune: 3, 2
# tune if: SMALL_N * SMALL_M <= 8192 and (SMALL_N + SMALL_M) * SMALL_K * (4 * SMALL_STAGES + 2 * SMALL_PARTS) <= 229376


@triton.jit
def small_parts(v):
    # Three numbers of 8 bits, which have the range of fp32. Of an infinity they make NaN.
    high = v.to(tl.bfloat16)
    rest = v - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def small_numbers(x_ptr, start, d, h, w, real, k, K, D, H, W, x_c, TAPS: tl.constexpr, U_H: tl.constexpr,
                  U_W: tl.constexpr, A_D: tl.constexpr, A_H: tl.constexpr, A_W: tl.constexpr, PADDED: tl.constexpr,
                  INDEX: tl.constexpr):
    # The numbers [k] of each output [m], where they lie: neighbours in m are neighbours in memory.
    c, tap = k // TAPS, k % TAPS
    k_d, k_h, k_w = tap // (U_H * U_W) * A_D, tap // U_W % U_H * A_H, tap % U_W * A_W
    at = (c.to(INDEX) * x_c + ((k_d * H + k_h) * W + k_w))[:, None] + start[None, :]
    known = (k < K)[:, None] & real[None, :]
    if PADDED:
        at_d, at_h, at_w = d[None, :] + k_d[:, None], h[None, :] + k_h[:, None], w[None, :] + k_w[:, None]
        known = known & (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W)
    return tl.load(x_ptr + at, mask=known, other=0.0)


@triton.jit
def small_multiply(x_ptr, w_ptr, bias_ptr, out_ptr, e0, e1, e2, e3, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, o_n, o_c,
                   TAPS: tl.constexpr, U_H: tl.constexpr, U_W: tl.constexpr, S_D: tl.constexpr, S_H: tl.constexpr,
                   S_W: tl.constexpr, P_D: tl.constexpr, P_H: tl.constexpr, P_W: tl.constexpr, A_D: tl.constexpr,
                   A_H: tl.constexpr, A_W: tl.constexpr, PADDED: tl.constexpr, HAS_BIAS: tl.constexpr,
                   EPILOGUE: tl.constexpr, INDEX: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr,
                   BM: tl.constexpr, BK: tl.constexpr):
    # Filters times outputs, in one launch: nothing is written but the result. Six of nine products, small ones first,
    # or three. Tensor cores truncate, so sums are added outside of them.
    blocks = tl.cdiv(N, BN)
    n = tl.program_id(0) % blocks * BN + tl.arange(0, BN)
    m = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    pixels = OD * OH * OW
    image, pixel = m // pixels, m % pixels
    d, h, w = pixel // (OH * OW) * S_D - P_D, pixel // OW % OH * S_H - P_H, pixel % OW * S_W - P_W
    start = image.to(INDEX) * x_n + ((d * H + h) * W + w)
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    small = tl.zeros((BN, BM), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x = small_numbers(x_ptr, start, d, h, w, m < M, k, K, D, H, W, x_c, TAPS, U_H, U_W, A_D, A_H, A_W, PADDED, INDEX)
        f = tl.load(w_ptr + (n[:, None] * K + k[None, :]), mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        x1, x2, x3 = small_parts(x)
        f1, f2, f3 = small_parts(f)
        if PARTS > 2:
            small = tl.dot(f1, x3, small)
            small = tl.dot(f3, x1, small)
            small = tl.dot(f2, x2, small)
        small = tl.dot(f1, x2, small)
        small = tl.dot(f2, x1, small)
        acc += tl.dot(f1, x1)
    value = acc + small
    inside = (n < N)[:, None] & (m < M)[None, :]
    lost = tl.where(inside & ((value - value) != 0.0), 1, 0)
    if tl.max(tl.max(lost, 1), 0) > 0:  # an infinity, NaN, or too large for bf16: once more, in fp32
        value = tl.zeros((BN, BM), dtype=tl.float32)
        for one in range(K):
            x = small_numbers(x_ptr, start, d, h, w, m < M, one + tl.arange(0, 1), K, D, H, W, x_c, TAPS, U_H, U_W, A_D,
                              A_H, A_W, PADDED, INDEX)
            value += tl.load(w_ptr + (n * K + one), mask=n < N, other=0.0)[:, None] * x
    if HAS_BIAS:
        value += tl.load(bias_ptr + n, mask=n < N, other=0.0)[:, None]
    to = (image.to(INDEX) * o_n + pixel)[None, :] + n.to(INDEX)[:, None] * o_c
    if EPILOGUE > 0:
        value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, to, inside, n[:, None], (n < N)[:, None])
    tl.store(out_ptr + to, value, mask=inside)


def small_tile(filters, pixels, count):
    """Filters and outputs of a program: no more than declared, and few enough for all multiprocessors to have one."""
    bn, bm = (min(most, max(16, triton.next_power_of_2(size))) for most, size in ((SMALL_N, filters), (SMALL_M, pixels)))
    while bn * bm > 512 and triton.cdiv(filters, bn) * triton.cdiv(pixels, bm) < count:
        bn, bm = (bn // 2, bm) if bn > bm else (bn, bm // 2)
    return bn, bm


def small_fits(x, weight, transposed, groups):
    whole = x.is_contiguous() and x[0].numel() < 2**31 and weight.numel() < 2**31 and x.dim() > 2 and x.numel() > 0
    return x.dtype == weight.dtype == torch.float32 and not transposed and groups == 1 and whole


class SmallConvolution:
    """What place, sizes and strides decide of a convolution that is one launch, in 1, 2 or 3 dimensions, and `epilogue`."""

    def __init__(self, place, x_shape, w_shape, has_bias, stride, padding, dilation, epilogue):
        batch, (filters, channels) = x_shape[0], w_shape[:2]
        sizes, taps, out_sizes, step, pad, apart = conv_sizes(x_shape, w_shape, stride, padding, dilation)
        self.out_shape = (batch, filters, *out_sizes[5 - len(x_shape):])
        pixels, numbers = math.prod(out_sizes), math.prod(taps)
        count = torch.cuda.get_device_properties(place[0]).multi_processor_count
        bn, bm = small_tile(filters, batch * pixels, count)
        large = batch * max(channels * math.prod(sizes), filters * pixels) >= 2**31 - 2**20
        self.multiply = PlannedLaunch(
            small_multiply, (triton.cdiv(filters, bn) * triton.cdiv(batch * pixels, bm),),
            (batch * pixels, filters, channels * numbers, *sizes, *out_sizes, channels * math.prod(sizes),
             math.prod(sizes), filters * pixels, pixels),
            TAPS=numbers, U_H=taps[1], U_W=taps[2], S_D=step[0], S_H=step[1], S_W=step[2], P_D=pad[0], P_H=pad[1],
            P_W=pad[2], A_D=apart[0], A_H=apart[1], A_W=apart[2], PADDED=any(pad), HAS_BIAS=has_bias,
            EPILOGUE=epilogue, INDEX=tl.int64 if large else tl.int32, PARTS=SMALL_PARTS, BN=bn, BM=bm, BK=SMALL_K,
            num_warps=SMALL_WARPS, num_stages=SMALL_STAGES)


small_convolution_of = functools.lru_cache(maxsize=None)(SmallConvolution)


def small_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                      extras=()):
    """As extern_kernels.convolution, in one launch, in 1, 2 or 3 dimensions; with `epilogue`, as the others."""
    if not small_fits(x, weight, transposed, groups):
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    weight = weight.contiguous()
    found = small_convolution_of(
        place_of(x, weight, bias, *extras), x.shape, weight.shape, bias is not None, tuple(stride), tuple(padding),
        tuple(dilation), epilogue)
    out = torch.empty(found.out_shape, device=x.device, dtype=torch.float32)
    found.multiply(x, weight, out if bias is None else bias, out, *(*extras, *4 * (out,))[:4])
    return out
