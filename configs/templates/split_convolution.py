CONV_M = 128  # tune: 64, 128
CONV_N = 64  # tune: 32, 64, 128
CONV_K = 32  # tune: 16, 32, 64
CONV_STAGES = 4  # tune: 2, 3, 4
# tune if: (CONV_M + 2 * CONV_N) * CONV_K * CONV_STAGES * 4 <= 229376


@triton.jit
def conv_pair(src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, C, D, H, W, s_n, s_c, s_d, s_h, s_w, PD, PH, PW, CP,
              F_D, F_H, F_W, pad_d, pad_h, pad_w, LISTED: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
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
    if LISTED:  # what is not finite counts as zero, and is added at the end
        finite = tl.abs(v) < float("inf")
        index = ((n * C + c.to(tl.int64)[None, :]) * D + d) * H * W + h * W + w
        split_list(~finite, index, count_ptr, list_ptr)
        v = tl.where(finite, v, 0.0)
    to = (n * PD * PH * PW + pixel.to(tl.int64))[:, None] * CP + channel[None, :]
    kept = (pixel < PD * PH * PW)[:, None] & (channel < CP)[None, :]
    split_halves(v * (split_exponent(top, n, True) << 23).to(tl.float32, bitcast=True), hi_ptr, lo_ptr, to, kept)


@triton.jit
def conv_write(acc, top_x, top_w, bias_ptr, out_ptr, m0, n0, pixels, N, PD, PH, PW, OD, OH, OW,
               o_n, o_c, o_d, o_h, o_w, HAS_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
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
def conv_gemm(xh_desc, xl_desc, wh_desc, wl_desc, top_x, top_w, bias_ptr, out_ptr, pixels, N, T_D, T_H, T_W,
              PD, PH, PW, D_D, D_H, D_W, OD, OH, OW, o_n, o_c, o_d, o_h, o_w, CHUNKS: tl.constexpr,
              HAS_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
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
    conv_write(acc0, top_x, top_w, bias_ptr, out_ptr, m0, n0, pixels, N, PD, PH, PW, OD, OH, OW,
               o_n, o_c, o_d, o_h, o_w, HAS_BIAS, BM, BN)
    conv_write(acc1, top_x, top_w, bias_ptr, out_ptr, m0, n0 + BN, pixels, N, PD, PH, PW, OD, OH, OW,
               o_n, o_c, o_d, o_h, o_w, HAS_BIAS, BM, BN)


@triton.jit
def conv_spread(count_ptr, list_ptr, x_ptr, w_ptr, out_ptr, C, D, H, W, N, OD, OH, OW, T_D, T_H, T_W, S_D, S_H, S_W,
                D_D, D_H, D_W, pad_d, pad_h, pad_w, s_n, s_c, s_d, s_h, s_w, f_n, f_c, f_d, f_h, f_w,
                o_n, o_c, o_d, o_h, o_w, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    # Add what the listed numbers x[n, c, d, h, w] contribute to the outputs whose filter meets them.
    for number in range(tl.program_id(0), tl.load(count_ptr), PROGRAMS):
        index = tl.load(list_ptr + number).to(tl.int64)
        w, h, d = index % W, index // W % H, index // (W * H) % D
        c, n = index // (W * H * D) % C, index // (W * H * D * C)
        v = tl.load(x_ptr + n * s_n + c * s_c + d * s_d + h * s_h + w * s_w)
        for tap in range(0, T_D * T_H * T_W):
            td, th, tw = tap // (T_H * T_W), tap // T_W % T_H, tap % T_W
            pd, ph, pw = d + pad_d - td * D_D, h + pad_h - th * D_H, w + pad_w - tw * D_W
            meets = (pd >= 0) & (ph >= 0) & (pw >= 0) & (pd % S_D == 0) & (ph % S_H == 0) & (pw % S_W == 0)
            od, oh, ow = pd // S_D, ph // S_H, pw // S_W
            meets = meets & (od < OD) & (oh < OH) & (ow < OW)
            for f0 in range(0, N, BLOCK):
                f = (f0 + tl.arange(0, BLOCK)).to(tl.int64)
                mask = (f < N) & meets
                weight = tl.load(w_ptr + f * f_n + c * f_c + td * f_d + th * f_h + tw * f_w, mask=mask, other=0.0)
                to = out_ptr + n * o_n + f * o_c + od * o_d + oh * o_h + ow * o_w
                tl.atomic_add(to, v * weight, mask=mask)


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
    (batch, channels), filters = x.shape[:2], weight.shape[0]
    full = x.reshape(batch, channels, *ones, *x.shape[2:])
    own = weight.reshape(filters, channels, *ones, *weight.shape[2:])
    sizes, own_taps = full.shape[2:], own.shape[2:]
    out_sizes = [(size + 2 * p - d * (t - 1) - 1) // f + 1
                 for size, p, d, t, f in zip(sizes, padding, dilation, own_taps, fold)]
    # With a step of f, f positions become channels, and ceil(t / f) taps of step 1 remain.
    taps = [triton.cdiv(t, f) for t, f in zip(own_taps, fold)]
    padded = [out + d * (t - 1) for out, d, t in zip(out_sizes, dilation, taps)]
    cp = triton.cdiv(channels * fold[0] * fold[1] * fold[2], 8) * 8
    chunks, bc = triton.cdiv(cp, CONV_K), min(64, triton.next_power_of_2(cp))
    places, width = padded[0] * padded[1] * padded[2], chunks * CONV_K
    xh, xl = (torch.empty((batch * places, cp), device=x.device, dtype=torch.float16) for _ in range(2))
    top_x, top_w = conv_largest(x), conv_largest(weight)
    count = torch.zeros(1, device=x.device, dtype=torch.int32)
    listed = torch.empty(x.numel(), device=x.device, dtype=torch.int32 if x.numel() < 2**31 else torch.int64)
    conv_pair[(triton.cdiv(places, 64), triton.cdiv(cp, bc), batch)](
        full, top_x, xh, xl, count, listed, channels, *sizes, *full.stride(), *padded, cp, *fold, *padding,
        LISTED=True, BP=64, BC=bc)
    # The filters likewise: [filters, taps, channels and positions], every tap padded to whole chunks.
    wh, wl = (torch.zeros((filters, taps[0] * taps[1] * taps[2] * width), device=x.device, dtype=torch.float16)
              for _ in range(2))
    conv_pair[(triton.cdiv(taps[0] * taps[1] * taps[2], 16), triton.cdiv(cp, bc), filters)](
        own, top_w, wh, wl, count, listed, channels, *own_taps, *own.stride(), *taps, width, *fold, 0, 0, 0,
        LISTED=False, BP=16, BC=bc)
    out = torch.empty((batch, filters, *out_sizes[3 - dims:]), device=x.device, dtype=torch.float32,
                      memory_format=conv_format(x, weight))
    strides = out.view(batch, filters, *out_sizes).stride()
    x_descs = [TensorDescriptor.from_tensor(part, [CONV_M, CONV_K]) for part in (xh, xl)]
    w_descs = [TensorDescriptor.from_tensor(part, [CONV_N, CONV_K]) for part in (wh, wl)]
    conv_gemm[(triton.cdiv(batch * places, CONV_M) * triton.cdiv(filters, 2 * CONV_N),)](
        *x_descs, *w_descs, top_x, top_w, out if bias is None else bias, out, batch * places, filters, *taps, *padded,
        *dilation, *out_sizes, *strides, CHUNKS=chunks, HAS_BIAS=bias is not None, BM=CONV_M, BN=CONV_N, BK=CONV_K,
        STAGES=CONV_STAGES, num_warps=8 if CONV_M == 128 else 4)
    conv_spread[(256,)](
        count, listed, full, own, out, channels, *sizes, filters, *out_sizes, *own_taps, *fold, *dilation, *padding,
        *full.stride(), *own.stride(), *strides, PROGRAMS=256, BLOCK=128)
    return out
