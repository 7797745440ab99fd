CONV_M = 128  # tune: 64, 128
CONV_N = 64  # tune: 32, 64, 128
CONV_K = 32  # tune: 16, 32, 64
CONV_STAGES = 4  # tune: 2, 3, 4
# tune if: (CONV_M + 2 * CONV_N) * CONV_K * CONV_STAGES * 4 <= 229376


@triton.jit
def conv_pair(
    src,
    top,
    hi_ptr,
    lo_ptr,
    C,
    D,
    H,
    W,
    s_n,
    s_c,
    s_d,
    s_h,
    s_w,
    PD,
    PH,
    PW,
    CP,
    F_D,
    F_H,
    F_W,
    pad_d,
    pad_h,
    pad_w,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    # hi and lo of [N, C, D, H, W] times the power of two of its sample, as [N, PD, PH, PW, CP]: padded by zeros, and
    # with the F_D x F_H x F_W positions of a step of the filter side by side among the channels.
    pixel = tl.program_id(0) * BP + tl.arange(0, BP)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    n = tl.program_id(2).to(tl.int64)
    folds = F_D * F_H * F_W
    c, fold = channel // folds, channel % folds
    d = (pixel // (PH * PW))[:, None] * F_D + (fold // (F_H * F_W))[None, :] - pad_d
    h = (pixel // PW % PH)[:, None] * F_H + (fold // F_W % F_H)[None, :] - pad_h
    w = (pixel % PW)[:, None] * F_W + (fold % F_W)[None, :] - pad_w
    inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W) & (c < C)[None, :]
    at = n * s_n + c.to(tl.int64)[None, :] * s_c + d.to(tl.int64) * s_d + h.to(tl.int64) * s_h + w.to(tl.int64) * s_w
    v = tl.load(src + at, mask=inside & (pixel < PD * PH * PW)[:, None], other=0.0)
    s = v * (split_exponent(top, n, True) << 23).to(tl.float32, bitcast=True)
    hi = s.to(tl.float16)
    lo = tl.where(tl.abs(v) < float("inf"), s - hi.to(tl.float32), 0.0).to(tl.float16)
    to = (n * PD * PH * PW + pixel.to(tl.int64))[:, None] * CP + channel[None, :]
    kept = (pixel < PD * PH * PW)[:, None] & (channel < CP)[None, :]
    tl.store(hi_ptr + to, hi, mask=kept)
    tl.store(lo_ptr + to, lo, mask=kept)


@triton.jit
def conv_write(
    acc,
    top_x,
    top_w,
    bias_ptr,
    out_ptr,
    m0,
    n0,
    pixels,
    N,
    PD,
    PH,
    PW,
    OD,
    OH,
    OW,
    o_n,
    o_c,
    o_d,
    o_h,
    o_w,
    HAS_BIAS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    m = m0 + tl.arange(0, BM)
    n = n0 + tl.arange(0, BN)
    sample, place = m // (PD * PH * PW), m % (PD * PH * PW)
    d, h, w = place // (PH * PW), place // PW % PH, place % PW
    real = (m < pixels) & (d < OD) & (h < OH) & (w < OW)
    value = acc * (split_inverse(top_x, sample, real)[:, None] * split_inverse(top_w, n, n < N)[None, :])
    if HAS_BIAS:
        value += tl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    to = sample.to(tl.int64) * o_n + d.to(tl.int64) * o_d + h.to(tl.int64) * o_h + w.to(tl.int64) * o_w
    tl.store(out_ptr + to[:, None] + n.to(tl.int64)[None, :] * o_c, value, mask=real[:, None] & (n < N)[None, :])


@triton.jit
def conv_gemm(
    xh_desc,
    xl_desc,
    wh_desc,
    wl_desc,
    top_x,
    top_w,
    bias_ptr,
    out_ptr,
    pixels,
    N,
    T_D,
    T_H,
    T_W,
    PD,
    PH,
    PW,
    D_D,
    D_H,
    D_W,
    OD,
    OH,
    OW,
    o_n,
    o_c,
    o_d,
    o_h,
    o_w,
    CHUNKS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    # A convolution of step 1 over padded images: each tap of the filter reads the same rows of pixels, shifted.
    tiles_n = tl.cdiv(N, 2 * BN)
    m0 = tl.program_id(0) // tiles_n * BM
    n0 = tl.program_id(0) % tiles_n * (2 * BN)
    acc0 = tl.zeros((BM, BN), dtype=tl.float32)
    acc1 = tl.zeros((BM, BN), dtype=tl.float32)
    for chunk in tl.range(0, T_D * T_H * T_W * CHUNKS, num_stages=STAGES):
        tap = chunk // CHUNKS
        row = m0 + (tap // (T_H * T_W) * D_D * PH + tap // T_W % T_H * D_H) * PW + tap % T_W * D_W
        c = chunk % CHUNKS * BK
        xh = xh_desc.load([row, c])
        xl = xl_desc.load([row, c])
        w0h = wh_desc.load([n0, chunk * BK])
        w0l = wl_desc.load([n0, chunk * BK])
        w1h = wh_desc.load([n0 + BN, chunk * BK])
        w1l = wl_desc.load([n0 + BN, chunk * BK])
        p = tl.dot(xl, w0h.T)  # a new accumulator for each chunk, the small products first
        p = tl.dot(xh, w0l.T, p)
        p = tl.dot(xh, w0h.T, p)
        acc0 += p
        q = tl.dot(xl, w1h.T)
        q = tl.dot(xh, w1l.T, q)
        q = tl.dot(xh, w1h.T, q)
        acc1 += q
    conv_write(
        acc0,
        top_x,
        top_w,
        bias_ptr,
        out_ptr,
        m0,
        n0,
        pixels,
        N,
        PD,
        PH,
        PW,
        OD,
        OH,
        OW,
        o_n,
        o_c,
        o_d,
        o_h,
        o_w,
        HAS_BIAS,
        BM,
        BN,
    )
    conv_write(
        acc1,
        top_x,
        top_w,
        bias_ptr,
        out_ptr,
        m0,
        n0 + BN,
        pixels,
        N,
        PD,
        PH,
        PW,
        OD,
        OH,
        OW,
        o_n,
        o_c,
        o_d,
        o_h,
        o_w,
        HAS_BIAS,
        BM,
        BN,
    )


def conv_largest(x):
    """The bits of the largest finite magnitude of each x[i]."""
    rows = x.shape[0]
    flat = x.permute(sorted(range(x.dim()), key=lambda axis: (axis > 0, -x.stride(axis)))).reshape(rows, -1)
    top = torch.zeros(rows, device=x.device, dtype=torch.int32)
    tiles = triton.cdiv(flat.shape[1], 1024)
    steps = max(1, tiles * rows // 4096)
    split_largest[(rows, triton.cdiv(tiles, steps), 1)](
        flat, top, rows, flat.shape[1], 0, *flat.stride(), STEPS=steps, BR=1, BK=1024
    )
    return top


def conv_format(x, weight):
    """As torch chooses it: channels last in memory if they are so in one operand."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    found = last and any(each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in (x, weight))
    return last if found else torch.contiguous_format


def conv_fits(x, weight, transposed, groups, dilation, stride):
    folded = all(s == 1 or d == 1 for s, d in zip(stride, dilation))
    return x.dtype == weight.dtype == torch.float32 and not transposed and groups == 1 and folded and x.dim() > 2


def split_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias):
    """As extern_kernels.convolution, in 1, 2 or 3 dimensions."""
    if not conv_fits(x, weight, transposed, groups, dilation, stride):
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    dims = x.dim() - 2
    ones, none = (1,) * (3 - dims), (0,) * (3 - dims)
    fold, dilation, padding = (*ones, *stride), (*ones, *dilation), (*none, *padding)
    sizes = (*ones, *x.shape[2:])
    taps = (*ones, *weight.shape[2:])
    out_sizes = [
        (size + 2 * p - d * (t - 1) - 1) // f + 1 for size, p, d, t, f in zip(sizes, padding, dilation, taps, fold)
    ]
    # With a step of f, f positions become channels, and ceil(t / f) taps of step 1 remain.
    taps = [triton.cdiv(t, f) for t, f in zip(taps, fold)]
    padded = [out + d * (t - 1) for out, d, t in zip(out_sizes, dilation, taps)]
    (batch, channels), filters = x.shape[:2], weight.shape[0]
    folds = fold[0] * fold[1] * fold[2]
    cp = triton.cdiv(channels * folds, 8) * 8
    chunks = triton.cdiv(cp, CONV_K)
    places = padded[0] * padded[1] * padded[2]
    xh, xl = (torch.empty((batch * places, cp), device=x.device, dtype=torch.float16) for _ in range(2))
    top_x, top_w = conv_largest(x), conv_largest(weight)
    full = x.reshape(batch, channels, *sizes)
    bc = min(64, triton.next_power_of_2(cp))
    conv_pair[(triton.cdiv(places, 64), triton.cdiv(cp, bc), batch)](
        full, top_x, xh, xl, channels, *sizes, *full.stride(), *padded, cp, *fold, *padding, BP=64, BC=bc
    )
    # The filters likewise: [filters, taps, channels and positions], every tap padded to whole chunks.
    width = chunks * CONV_K
    count = taps[0] * taps[1] * taps[2]
    wh, wl = (torch.zeros((filters, count, width), device=x.device, dtype=torch.float16) for _ in range(2))
    own = weight.reshape(filters, channels, *ones, *weight.shape[2:])
    conv_pair[(triton.cdiv(count, 16), triton.cdiv(cp, bc), filters)](
        own, top_w, wh, wl, channels, *own.shape[2:], *own.stride(), *taps, width, *fold, 0, 0, 0, BP=16, BC=bc
    )
    own_format = conv_format(x, weight)
    out = torch.empty(
        (batch, filters, *out_sizes[3 - dims :]), device=x.device, dtype=torch.float32, memory_format=own_format
    )
    whole = out.view(batch, filters, *out_sizes)
    flat = (wh.view(filters, -1), wl.view(filters, -1))
    x_descs = [TensorDescriptor.from_tensor(part, [CONV_M, CONV_K]) for part in (xh, xl)]
    w_descs = [TensorDescriptor.from_tensor(part, [CONV_N, CONV_K]) for part in flat]
    conv_gemm[(triton.cdiv(batch * places, CONV_M) * triton.cdiv(filters, 2 * CONV_N),)](
        *x_descs,
        *w_descs,
        top_x,
        top_w,
        out if bias is None else bias,
        out,
        batch * places,
        filters,
        *taps,
        *padded,
        *dilation,
        *out_sizes,
        *whole.stride(),
        CHUNKS=chunks,
        HAS_BIAS=bias is not None,
        BM=CONV_M,
        BN=CONV_N,
        BK=CONV_K,
        STAGES=CONV_STAGES,
        num_warps=8 if CONV_M == 128 else 4,
    )
    return out
