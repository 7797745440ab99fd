DIRECT_W = 64  # tune: 32, 64, 128, 256
DIRECT_H = 8  # tune: 1, 2, 4, 8, 16
# tune if: DIRECT_W * DIRECT_H <= 1024


@triton.jit
def direct_taps(acc, x, filters, at_h, at_w, H, W, x_h, x_w, w_h, w_w, apart_h, apart_w, K_H: tl.constexpr,
                K_W: tl.constexpr, INSIDE: tl.constexpr):
    # Add the taps of one plane of a filter.
    tile = x + (at_h[:, None] * x_h + at_w[None, :] * x_w)
    for k_h in tl.static_range(K_H):
        for k_w in tl.static_range(K_W):
            if INSIDE:
                v = tl.load(tile + (k_h * apart_h * x_h + k_w * apart_w * x_w))
            else:
                h, w = at_h + k_h * apart_h, at_w + k_w * apart_w
                inside = ((h >= 0) & (h < H))[:, None] & ((w >= 0) & (w < W))[None, :]
                v = tl.load(tile + (k_h * apart_h * x_h + k_w * apart_w * x_w), mask=inside, other=0.0)
            acc += v * tl.load(filters + (k_h * w_h + k_w * w_w))
    return acc


@triton.jit
def direct_sum(x_ptr, w_ptr, bias_ptr, out_ptr, e0, e1, e2, e3, C, FILTERS, F_GROUP, D, H, W, OD, OH, OW, x_n, x_c, x_d, x_h, x_w,
               w_f, w_c, w_d, w_h, w_w, o_n, o_c, o_d, o_h, o_w, step_d, step_h, step_w, pad_d, pad_h, pad_w,
               apart_d, apart_h, apart_w, K_D, K_H: tl.constexpr, K_W: tl.constexpr, HAS_BIAS: tl.constexpr,
               EPILOGUE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    # One filter's outputs [BH, BW] of one image: each tap is read where it lies and added in fp32. Memory is read once,
    # the taps' overlap comes from the caches. What follows the convolution comes last.
    tiles_w, tiles_h = tl.cdiv(OW, BW), tl.cdiv(OH, BH)
    pid = tl.program_id(0)
    w0 = pid % tiles_w * BW
    h0 = pid // tiles_w % tiles_h * BH
    rest = pid // tiles_w // tiles_h
    d, f, n = rest % OD, rest // OD % FILTERS, (rest // OD // FILTERS).to(tl.int64)
    image = x_ptr + n * x_n + (f // F_GROUP * C).to(tl.int64) * x_c
    filters = w_ptr + f.to(tl.int64) * w_f
    h, w = h0 + tl.arange(0, BH), w0 + tl.arange(0, BW)
    at_h, at_w = h * step_h - pad_h, w * step_w - pad_w
    inside_h = (h0 * step_h >= pad_h) & ((h0 + BH - 1) * step_h - pad_h + (K_H - 1) * apart_h < H)
    inside_w = (w0 * step_w >= pad_w) & ((w0 + BW - 1) * step_w - pad_w + (K_W - 1) * apart_w < W)
    acc = tl.zeros((BH, BW), dtype=tl.float32)
    for c in range(C):
        for k_d in range(K_D):
            at_d = d * step_d - pad_d + k_d * apart_d
            if (at_d >= 0) & (at_d < D):
                plane, taps = image + (c * x_c + at_d * x_d), filters + (c * w_c + k_d * w_d)
                if inside_h & inside_w:  # most tiles: without a comparison for each number
                    acc = direct_taps(acc, plane, taps, at_h, at_w, H, W, x_h, x_w, w_h, w_w, apart_h, apart_w,
                                      K_H, K_W, True)
                else:
                    acc = direct_taps(acc, plane, taps, at_h, at_w, H, W, x_h, x_w, w_h, w_w, apart_h, apart_w,
                                      K_H, K_W, False)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + f)
    real = (h < OH)[:, None] & (w < OW)[None, :]
    at = n * o_n + f.to(tl.int64) * o_c + d.to(tl.int64) * o_d + (h[:, None] * o_h + w[None, :] * o_w)
    if EPILOGUE > 0:
        acc = split_epilogue(EPILOGUE, acc, e0, e1, e2, e3, at, real, f, f < FILTERS)
    tl.store(out_ptr + at, acc, mask=real)


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
        bw = min(DIRECT_W, triton.next_power_of_2(out_sizes[2]))
        bh = min(DIRECT_H, triton.next_power_of_2(out_sizes[1]))
        tiles = triton.cdiv(out_sizes[2], bw) * triton.cdiv(out_sizes[1], bh)
        self.sum = PlannedLaunch(
            direct_sum, (tiles * out_sizes[0] * filters * batch,),
            (channels, filters, filters // groups, *sizes, *out_sizes, *full.stride(), *own.stride(), *out_strides, *step,
             *pad, *apart), K_D=taps[0], K_H=taps[1], K_W=taps[2], HAS_BIAS=has_bias,
            EPILOGUE=epilogue, BH=bh, BW=bw)


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
