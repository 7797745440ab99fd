DIRECT_W = 128  # tune: 32, 64, 128, 256
DIRECT_H = 8  # tune: 1, 2, 4, 8, 16


@triton.jit
def direct_put(rows, i: tl.constexpr, value):
    return rows[:i] + (value,) + rows[i + 1:]


@triton.jit
def direct_add(rows, tile, taps, seen, at_h, at_w, H, W, x_h, x_w, apart_w, K_H: tl.constexpr, K_W: tl.constexpr,
               S_H: tl.constexpr, A_H: tl.constexpr, BH: tl.constexpr, INSIDE: tl.constexpr):
    # Adds a filter's taps of one plane of the input, of which each row is read once for all outputs that it meets.
    for r in tl.static_range((BH - 1) * S_H + (K_H - 1) * A_H + 1):
        row, inside_h = tile + r * x_h, seen & (at_h + r >= 0) & (at_h + r < H)
        for k_w in tl.static_range(K_W):
            if INSIDE:
                v = tl.load(row + k_w * apart_w * x_w)
            else:
                w = at_w + k_w * apart_w
                v = tl.load(row + k_w * apart_w * x_w, mask=((w >= 0) & (w < W))[:, None] & inside_h[None, :], other=0.0)
            for i in tl.static_range(BH):
                if (r - i * S_H) % A_H == 0 and i * S_H <= r and r - i * S_H <= (K_H - 1) * A_H:
                    rows = direct_put(rows, i, rows[i] + v * taps[(r - i * S_H) // A_H * K_W + k_w])
    return rows


# Numbers are read and written one by one: pairs of those that happen to be aligned would have to change threads.
@triton.jit(do_not_specialize_on_alignment=["pad_w", "o_c"])
def direct_sum(x_ptr, w_ptr, bias_ptr, out_ptr, e0, e1, e2, e3, PLANES, C, FILTERS, F_GROUP, D, H, W, OD, OH, OW, x_n,
               x_c, x_d, x_h, x_w, w_f, w_c, w_d, w_h, w_w, o_n, o_c, o_d, o_h, o_w, step_d, step_w, pad_d, pad_h, pad_w,
               apart_d, apart_w, K_D, K_H: tl.constexpr, K_W: tl.constexpr, S_H: tl.constexpr, A_H: tl.constexpr,
               HAS_BIAS: tl.constexpr, EPILOGUE: tl.constexpr, BP: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    # BH rows of outputs [BW, BP] of BP planes, each of one filter and one image, added in fp32. What taps beside each
    # other share comes from the caches. What follows the convolution comes last.
    tiles_w, tiles_h = tl.cdiv(OW, BW), tl.cdiv(OH, BH)
    pid = tl.program_id(0)
    w0, h0, p0 = pid % tiles_w * BW, pid // tiles_w % tiles_h * BH, pid // tiles_w // tiles_h * BP
    w, plane = w0 + tl.arange(0, BW), p0 + tl.arange(0, BP)
    there, d, f, n = plane < PLANES, plane % OD, plane // OD % FILTERS, (plane // OD // FILTERS).to(tl.int64)
    at_d, at_h, at_w = d * step_d - pad_d, h0 * S_H - pad_h, w * step_w - pad_w
    images, filters = x_ptr + (n * x_n + (f // F_GROUP * C).to(tl.int64) * x_c), w_ptr + f.to(tl.int64) * w_f
    at = at_h * x_h + at_w * x_w
    # Most tiles: without a comparison for each number. Of many taps there is one form, since each is in the code.
    inside = (K_H * K_W <= 64) & (pad_d == 0) & (p0 + BP <= PLANES)
    inside = inside & (at_h >= 0) & (at_h + (BH - 1) * S_H + (K_H - 1) * A_H < H)
    inside = inside & (w0 * step_w >= pad_w) & ((w0 + BW - 1) * step_w - pad_w + (K_W - 1) * apart_w < W)
    rows = (tl.zeros((BW, BP), dtype=tl.float32),) * BH
    for c in range(C):
        for k_d in range(K_D):
            deep, tap, taps = at_d + k_d * apart_d, filters + (c * w_c + k_d * w_d), ()
            for k in tl.static_range(K_H * K_W):
                taps = taps + (tl.load(tap + (k // K_W * w_h + k % K_W * w_w), mask=there, other=0.0)[None, :],)
            seen, tile = there & (deep >= 0) & (deep < D), (images + (c * x_c + deep * x_d))[None, :] + at[:, None]
            if inside:
                rows = direct_add(rows, tile, taps, seen, at_h, at_w, H, W, x_h, x_w, apart_w, K_H, K_W, S_H, A_H, BH,
                                  True)
            else:
                rows = direct_add(rows, tile, taps, seen, at_h, at_w, H, W, x_h, x_w, apart_w, K_H, K_W, S_H, A_H, BH,
                                  False)
    place = n * o_n + f.to(tl.int64) * o_c + d.to(tl.int64) * o_d
    for i in tl.static_range(BH):
        value, real = rows[i], (w < OW)[:, None] & (there & (h0 + i < OH))[None, :]
        at = (w * o_w)[:, None] + (place + (h0 + i) * o_h)[None, :]
        if HAS_BIAS:
            value += tl.load(bias_ptr + f, mask=there, other=0.0)[None, :]
        if EPILOGUE > 0:
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, real, f[None, :], there[None, :])
        tl.store(out_ptr + at, value, mask=real)


def direct_fits(x, weight, transposed):
    few = weight[0].numel() <= 128  # with more numbers to an output a library's products pay
    plain = x.is_contiguous() and x[0].numel() < 2**31 and x.dim() > 2
    return x.dtype == weight.dtype == torch.float32 and not transposed and few and plain


class DirectConvolution:
    """What place, sizes and strides decide of a convolution in groups, in 1, 2 or 3 dimensions, and `epilogue`."""

    def __init__(self, place, x_shape, w_shape, w_strides, has_bias, stride, padding, dilation, groups, epilogue):
        batch, (filters, channels) = x_shape[0], w_shape[:2]
        sizes, taps, out_sizes, step, pad, apart = conv_sizes(x_shape, w_shape, stride, padding, dilation)
        self.out_shape = (batch, filters, *out_sizes[5 - len(x_shape):])
        full = torch.empty(batch, x_shape[1], *sizes, device="meta")
        own = torch.empty_strided(w_shape, w_strides, device="meta").reshape(filters, channels, *taps)
        out_strides = torch.empty(batch, filters, *out_sizes, device="meta").stride()
        planes = out_sizes[0] * filters * batch
        bw = min(DIRECT_W, triton.next_power_of_2(out_sizes[2]))
        most = 256 // (taps[1] * taps[2]) if taps[1] * taps[2] <= 64 else 1
        bh = min(DIRECT_H, triton.next_power_of_2(out_sizes[1]), 1 << most.bit_length() - 1)
        bp = min(DIRECT_W // bw, triton.next_power_of_2(planes))
        tiles = triton.cdiv(out_sizes[2], bw) * triton.cdiv(out_sizes[1], bh)
        self.sum = PlannedLaunch(
            direct_sum, (tiles * triton.cdiv(planes, bp),),
            (planes, channels, filters, filters // groups, *sizes, *out_sizes, *full.stride(), *own.stride(), *out_strides,
             step[0], step[2], *pad, apart[0], apart[2], taps[0]), K_H=taps[1], K_W=taps[2], S_H=step[1], A_H=apart[1],
            HAS_BIAS=has_bias, EPILOGUE=epilogue, BP=bp, BH=bh, BW=bw, num_warps=max(1, bp * bw // 64))


direct_convolution_of = functools.lru_cache(maxsize=None)(DirectConvolution)


def direct_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                       extras=()):
    """As extern_kernels.convolution, for groups of few channels, in 1, 2 or 3 dimensions.

    With `epilogue`, what `split_epilogue` makes of that, where `direct_fits`.
    """
    if not direct_fits(x, weight, transposed):
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    found = direct_convolution_of(
        place_of(x, weight, bias, *extras), x.shape, weight.shape, weight.stride(), bias is not None, tuple(stride),
        tuple(padding), tuple(dilation), groups, epilogue)
    out = torch.empty(found.out_shape, device=x.device, dtype=torch.float32)
    found.sum(x, weight, out if bias is None else bias, out, *(*extras, *4 * (out,))[:4])
    return out
