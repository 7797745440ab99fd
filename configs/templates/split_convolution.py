@triton.jit
def conv_place(place, H, W, DIMS: tl.constexpr):
    # d, h and w of a place in [D, H, W], where axes before the last DIMS have one place.
    row = place // W if DIMS > 1 else place * 0
    d = row // H if DIMS > 2 else place * 0
    return d, row - d * H, place - row * W


@triton.jit
def conv_image(pid, src, top, hi_ptr, lo_ptr, count_ptr, list_ptr, C, D, H, W, s_n, s_c, s_d, s_h, s_w, PD, PH, PW, CP,
               F_D, F_H, F_W, lead_d, lead_h, lead_w, plane, pixels, P_D, P_H, P_W, q_d, q_h, q_w, a_d, a_h, a_w,
               DIMS: tl.constexpr, INDEX: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, FP8: tl.constexpr,
               PHASED: tl.constexpr):
    # hi and lo of [N, C, D, H, W] times the power of two of its sample, as [N, PD, PH, PW, CP]: with zeros before and
    # behind, and with the F_D x F_H x F_W positions of a step of the filter side by side among the channels. PHASED:
    # as one such tensor for each of the P_D x P_H x P_W positions of a step that taps see, the first at q, each a
    # further on. What is not finite, or above its sample's top, counts as zero, and is added at the end.
    folds, tiles, slices = 1 if PHASED else F_D * F_H * F_W, tl.cdiv(PW, BP), tl.cdiv(CP, BC)
    if PHASED:  # a step's positions beside each other, for they lie in the same sectors
        phase, pid = pid % (P_D * P_H * P_W), pid // (P_D * P_H * P_W)
    # A program has places of one row, along which Triton lays its threads: they read what lies side by side, or with
    # steps in few sectors. Where it cannot see what lies side by side, threads lie along a tile's first axis.
    line = pid // tiles // slices
    n, d0, h0 = (line // (PD * PH)).to(INDEX), line // PH % PD, line % PH
    place = pid % tiles * BP + tl.arange(0, BP)
    channel = pid // tiles % slices * BC + tl.arange(0, BC)
    c = channel // folds
    if PHASED:
        d1, h1, w1 = conv_place(phase + 0 * channel, P_H, P_W, DIMS)
        d1, h1, w1 = (q_d + d1 * a_d) % F_D, (q_h + h1 * a_h) % F_H, (q_w + w1 * a_w) % F_W
    else:
        d1, h1, w1 = conv_place(channel - c * folds, F_H, F_W, DIMS)
    d, h, w0 = d0 * F_D - lead_d + d1, h0 * F_H - lead_h + h1, place * F_W - lead_w
    w = w0[:, None] + w1[None, :]
    seen, of_channel = c < C, n * s_n + c.to(INDEX) * s_c + w1.to(INDEX) * s_w
    if DIMS > 1:
        seen, of_channel = seen & (h >= 0) & (h < H), of_channel + h.to(INDEX) * s_h
    if DIMS > 2:
        seen, of_channel = seen & (d >= 0) & (d < D), of_channel + d.to(INDEX) * s_d
    inside = (w >= 0) & (w < W) & (place < PW)[:, None] & seen[None, :]
    v = tl.load(src + (of_channel[None, :] + (w0.to(INDEX) * s_w)[:, None]), mask=inside, other=0.0)
    size, most = v.to(tl.int32, bitcast=True) & 0x7FFFFFFF, tl.load(top + n)  # as bits, so that NaN is larger than all
    if tl.max(size) > most:
        split_list(size > most, (((n * C + c.to(INDEX)) * D + d) * H + h)[None, :] * W + w, count_ptr, list_ptr)
        v = tl.where(size > most, 0.0, v)
    v *= (split_exponent(top, n, True, 268 - FP8) << 23).to(tl.float32, bitcast=True)
    first = line.to(INDEX) * PW + (phase.to(INDEX) * pixels if PHASED else 0)
    to = (first + place)[:, None] * CP + channel[None, :]
    there = (place < PW)[:, None] & (channel < CP)[None, :]
    if FP8:
        split_small(v, hi_ptr, lo_ptr, to, to, to + plane, there)
    else:
        split_halves(v, hi_ptr, lo_ptr, to, there)


@triton.jit
def conv_targets(pid, top, where_ptr, real_ptr, inverse_ptr, pixels, PD, PH, PW, OD, OH, OW, crop_d, crop_h, crop_w,
                 o_n, o_d, o_h, o_w, S_D: tl.constexpr, S_H: tl.constexpr, S_W: tl.constexpr, DIMS: tl.constexpr,
                 INDEX: tl.constexpr, BM: tl.constexpr, FP8: tl.constexpr):
    # For each pixel of the padded images: where its first output of a step lies, a bit for each output of the step that
    # is real, and the inverse of its sample's power of two. The product's end then divides nothing.
    m = pid * BM + tl.arange(0, BM)
    sample = m // (PD * PH * PW)
    d, h, w = conv_place(m - sample * (PD * PH * PW), PH, PW, DIMS)
    d, h, w = d * S_D - crop_d, h * S_H - crop_h, w * S_W - crop_w
    where = sample.to(INDEX) * o_n + d.to(INDEX) * o_d + h.to(INDEX) * o_h + w.to(INDEX) * o_w
    real = tl.zeros((BM,), dtype=tl.int32)
    for step in tl.static_range(S_D * S_H * S_W):
        at_d, at_h, at_w = d + step // (S_H * S_W), h + step // S_W % S_H, w + step % S_W
        inside = (at_d >= 0) & (at_d < OD) & (at_h >= 0) & (at_h < OH) & (at_w >= 0) & (at_w < OW)
        real |= inside.to(tl.int32) << step
    tl.store(where_ptr + m, where, mask=m < pixels)
    tl.store(real_ptr + m, real, mask=m < pixels)
    tl.store(inverse_ptr + m, split_inverse(top, sample, m < pixels, 268 - FP8), mask=m < pixels)


@triton.jit
def conv_filter(pid, src, top, hi_ptr, lo_ptr, C, K_D, K_H, K_W, s_f, s_c, s_d, s_h, s_w, U_D, U_H, U_W, JOINED, CP,
                WIDTH, F_D, F_H, F_W, plane, S_D: tl.constexpr, S_H: tl.constexpr, S_W: tl.constexpr,
                TURNED: tl.constexpr, BE: tl.constexpr, FP8: tl.constexpr):
    # hi and lo of one row for each filter and each of the S_D x S_H x S_W outputs of a step: for each of
    # U_D x U_H x U_W groups of taps WIDTH numbers, of JOINED taps with CP channels and positions each, and zeros.
    total = U_D * U_H * U_W * WIDTH
    slices = tl.cdiv(total, BE)
    row, e = pid // slices, pid % slices * BE + tl.arange(0, BE)
    steps = S_D * S_H * S_W
    f, phase = row // steps, row % steps
    group, rest = e // WIDTH, e % WIDTH
    u_d, u_h, u_w = group // (U_H * U_W), group // U_W % U_H, group % U_W * JOINED + rest // CP
    folds = F_D * F_H * F_W
    c, fold = rest % CP // folds, rest % CP % folds
    k_d, k_h, k_w = u_d * F_D + fold // (F_H * F_W), u_h * F_H + fold // F_W % F_H, u_w * F_W + fold % F_W
    if TURNED:
        k_d = (U_D - 1 - u_d) * S_D + phase // (S_H * S_W)
        k_h = (U_H - 1 - u_h) * S_H + phase // S_W % S_H
        k_w = (U_W * JOINED - 1 - u_w) * S_W + phase % S_W
    inside = (e < total) & (rest < JOINED * CP) & (c < C) & (k_d < K_D) & (k_h < K_H) & (k_w < K_W)
    at = f.to(tl.int64) * s_f + c.to(tl.int64) * s_c + k_d.to(tl.int64) * s_d + k_h.to(tl.int64) * s_h
    v = tl.load(src + at + k_w.to(tl.int64) * s_w, mask=inside, other=0.0)
    v = v * (split_exponent(top, f, True, 268 - FP8) << 23).to(tl.float32, bitcast=True)
    to = row.to(tl.int64) * total + e
    if FP8:
        split_small(v, hi_ptr, lo_ptr, to, to + plane, to, e < total)
    else:
        split_halves(v, hi_ptr, lo_ptr, to, e < total)


# One compiled kernel serves many convolutions of a network: where it does not pay, Triton does not look at numbers.
CONV_SIZES = [
    "images", "targets", "C", "H", "W", "PH", "PW", "OCTETS", "lead_d", "lead_h", "lead_w", "SIXTEENS",
    "OH", "OW", "crop_d", "crop_h", "crop_w", "o_n", "o_d", "o_h", "o_w", "x_plane", "w_plane", "P_D", "P_H", "P_W",
    "q_d", "q_h", "q_w", "a_d", "a_h", "a_w"]
CONV_ALIGNED_OR_NOT = [
    "D", "PD", "x_c", "x_d", "F_D", "F_H", "F_W", "K_D", "K_H", "K_W", "w_f", "w_c", "w_d", "w_h", "w_w", "U_D",
    "U_H", "U_W", "JOINED", "OD"]


@triton.jit(do_not_specialize=CONV_SIZES, do_not_specialize_on_alignment=CONV_ALIGNED_OR_NOT)
def conv_pairs(x, w, top_x, top_w, xh, xl, wh, wl, count_ptr, list_ptr, where_ptr, real_ptr, inverse_ptr,
               images, targets, pixels, C, D, H, W, x_n, x_c, x_d, x_h, x_w, PD, PH, PW, OCTETS, F_D, F_H, F_W,
               lead_d, lead_h, lead_w, K_D, K_H, K_W, w_f, w_c, w_d, w_h, w_w, U_D, U_H, U_W, JOINED, SIXTEENS,
               OD, OH, OW, crop_d, crop_h, crop_w, o_n, o_d, o_h, o_w, x_plane, w_plane, P_D, P_H, P_W, q_d,
               q_h, q_w, a_d, a_h, a_w, S_D: tl.constexpr, S_H: tl.constexpr, S_W: tl.constexpr, TURNED: tl.constexpr,
               DIMS: tl.constexpr, INDEX: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr,
               BE: tl.constexpr, FP8: tl.constexpr, PHASED: tl.constexpr):
    # One launch: the first programs have images, then come those of targets and of filters.
    pid = tl.program_id(0)
    CP, WIDTH = OCTETS * 8, SIXTEENS * 16  # so the compiler knows what they are multiples of
    if pid < images:  # from the last on: of what `split_tops` has read, the cache still has the end
        conv_image(images - 1 - pid, x, top_x, xh, xl, count_ptr, list_ptr, C, D, H, W, x_n, x_c, x_d, x_h, x_w, PD, PH, PW, CP,
                   F_D, F_H, F_W, lead_d, lead_h, lead_w, x_plane, pixels, P_D, P_H, P_W, q_d, q_h, q_w, a_d, a_h, a_w,
                   DIMS, INDEX, BP, BC, FP8, PHASED)
    elif pid < images + targets:
        conv_targets(pid - images, top_x, where_ptr, real_ptr, inverse_ptr, pixels, PD, PH, PW, OD, OH, OW,
                     crop_d, crop_h, crop_w, o_n, o_d, o_h, o_w, S_D, S_H, S_W, DIMS, INDEX, BM, FP8)
    elif PHASED:
        conv_filter(pid - images - targets, w, top_w, wh, wl, C, K_D, K_H, K_W, w_f, w_c, w_d, w_h, w_w, U_D, U_H, U_W,
                    JOINED, CP, WIDTH, 1, 1, 1, w_plane, S_D, S_H, S_W, TURNED, BE, FP8)
    else:
        conv_filter(pid - images - targets, w, top_w, wh, wl, C, K_D, K_H, K_W, w_f, w_c, w_d, w_h, w_w, U_D, U_H, U_W,
                    JOINED, CP, WIDTH, F_D, F_H, F_W, w_plane, S_D, S_H, S_W, TURNED, BE, FP8)


@triton.jit
def conv_meets(at, lead, tap, step, dilation, out, TURNED: tl.constexpr):
    # The output that an input meets by a tap of the filter, and whether there is one.
    if TURNED:
        place = at * step + tap * dilation - lead
        return place, (place >= 0) & (place < out)
    else:
        place = at + lead - tap * dilation
        return place // step, (place >= 0) & (place % step == 0) & (place // step < out)


@triton.jit(do_not_specialize=range(5, 40))
def conv_spread(count_ptr, list_ptr, x_ptr, w_ptr, out_ptr, C, D, H, W, N, OD, OH, OW, K_D, K_H, K_W, S_D, S_H, S_W,
                D_D, D_H, D_W, lead_d, lead_h, lead_w, s_n, s_c, s_d, s_h, s_w, f_n, f_c, f_d, f_h, f_w,
                o_n, o_c, o_d, o_h, o_w, TURNED: tl.constexpr, BLOCK: tl.constexpr):
    # Add what the listed numbers x[n, c, d, h, w] contribute to the outputs whose filter meets them.
    for number in range(tl.program_id(0), tl.load(count_ptr), tl.num_programs(0)):
        index = tl.load(list_ptr + number).to(tl.int64)
        w, h, d = index % W, index // W % H, index // (W * H) % D
        c, n = index // (W * H * D) % C, index // (W * H * D * C)
        v = tl.load(x_ptr + n * s_n + c * s_c + d * s_d + h * s_h + w * s_w)
        for tap in range(0, K_D * K_H * K_W):
            td, th, tw = tap // (K_H * K_W), tap // K_W % K_H, tap % K_W
            od, meets_d = conv_meets(d, lead_d, td, S_D, D_D, OD, TURNED)
            oh, meets_h = conv_meets(h, lead_h, th, S_H, D_H, OH, TURNED)
            ow, meets_w = conv_meets(w, lead_w, tw, S_W, D_W, OW, TURNED)
            meets = meets_d & meets_h & meets_w
            for f0 in range(0, N, BLOCK):
                f = (f0 + tl.arange(0, BLOCK)).to(tl.int64)
                mask = (f < N) & meets
                weight = tl.load(w_ptr + f * f_n + c * f_c + td * f_d + th * f_h + tw * f_w, mask=mask, other=0.0)
                to = out_ptr + n * o_n + f * o_c + od * o_d + oh * o_h + ow * o_w
                tl.atomic_add(to, v * weight, mask=mask)


def conv_rows(x):
    """x [rows, ...] as [rows, numbers], in the order of memory."""
    order = sorted(range(x.dim()), key=lambda axis: (axis > 0, -x.stride(axis)))
    return x.permute(order).reshape(x.shape[0], -1)


def conv_tops(x, weight, turned, multiprocessors):
    """The launch that finds, for each sample and for each filter, the bits of the largest finite magnitude.

    A sample's is without rare larger ones, for pixels that do not see them must stay accurate.
    """
    samples = conv_rows(x)
    filters = weight.flatten(2) if turned else conv_rows(weight)[None]  # [1 or channels, filters, numbers]
    (batch, count), (groups, rows, width) = samples.shape, filters.shape
    # Of many numbers each program has more on their way to it, and all programs run at once: a multiprocessor has five.
    tile, most = (4096, 5 * multiprocessors) if batch * count >= 2**23 else (1024, 2048)
    x_tile = (1, min(tile, triton.next_power_of_2(count)))
    w_tile = (32, min(64, triton.next_power_of_2(width))) if turned else (1, 128 if width <= 128 else 1024)
    x_programs, x_steps = split_programs(1, batch, count, x_tile, most)
    w_programs, w_steps = split_programs(groups, rows, width, w_tile)
    return PlannedLaunch(
        split_tops, (x_programs + w_programs,),
        (x_programs, 0, batch, count, 0, *samples.stride(), x_steps, 0, rows, width, *filters.stride(), w_steps),
        USUAL=x_tile[1] >= 8, A_BR=x_tile[0], A_BK=x_tile[1], B_BR=w_tile[0], B_BK=w_tile[1])


def conv_format(x, weight):
    """As torch chooses it: channels last in memory if they are so in one operand."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    found = last and any(each.is_contiguous(memory_format=last) and not each.is_contiguous() for each in (x, weight))
    return last if found else torch.contiguous_format


def conv_fits(x, weight, transposed, groups, dilation, stride):
    apart = all(s == 1 or d == 1 for s, d in zip(stride, dilation))
    few = torch.Size(stride).numel() < 32  # a bit for each output of a step
    fits = not transposed or (apart and few)
    return x.dtype == weight.dtype == torch.float32 and groups == 1 and fits and x.dim() > 2


class SplitConvolution:
    """What place, sizes and strides decide of a convolution in 1, 2 or 3 dimensions, and `epilogue`."""

    def __init__(self, place, x_shape, x_strides, w_shape, w_strides, has_bias, stride, padding, dilation,
                 transposed, output_padding, epilogue):
        x = torch.empty_strided(x_shape, x_strides, device="meta")
        weight = torch.empty_strided(w_shape, w_strides, device="meta")
        #: Whether a sample's numbers, and a filter's, are a row without a copy.
        self.dense = conv_rows(x)._is_view() and conv_rows(weight)._is_view()
        dims, (batch, channels), filters = x.dim() - 2, x.shape[:2], weight.shape[1 if transposed else 0]
        ones, none = (1,) * (3 - dims), (0,) * (3 - dims)
        stride, dilation, padding = (*ones, *stride), (*ones, *dilation), (*none, *padding)
        extra = (*none, *output_padding)
        full = x.reshape(batch, channels, *ones, *x.shape[2:])
        own = weight.reshape(*weight.shape[:2], *ones, *weight.shape[2:])
        sizes, own_taps = full.shape[2:], own.shape[2:]
        if transposed:
            own = own.transpose(0, 1)
            taps = [triton.cdiv(t, s) for t, s in zip(own_taps, stride)]
            out_sizes = [(size - 1) * s - 2 * p + d * (t - 1) + e + 1
                         for size, s, p, d, t, e in zip(sizes, stride, padding, dilation, own_taps, extra)]
            # Each of the s outputs of a step is a convolution of step 1 with every s-th tap, from the last to the first.
            steps, crop = stride, padding
            lead = [d * (t - 1) for d, t in zip(dilation, taps)]
            how = SplitSteps(channels, taps, (1, 1, 1), lead, dilation, False)
            found = [(out + p - 1) // s + 1 for out, p, s in zip(out_sizes, padding, stride)]
        else:
            out_sizes = [(size + 2 * p - d * (t - 1) - 1) // s + 1
                         for size, s, p, d, t in zip(sizes, stride, padding, dilation, own_taps)]
            how = conv_steps(channels, own_taps, stride, padding, dilation)
            steps, crop, found = (1, 1, 1), (0, 0, 0), out_sizes
        padded = [count + reach for count, reach in zip(found, how.reach)]
        if not transposed:
            padded[2] = conv_row(found[2], padded[2])
        places, rows = padded[0] * padded[1] * padded[2], filters * steps[0] * steps[1] * steps[2]
        cp, joined, groups, bk, chunks, total = 8 * how.octets, how.joined, how.groups, how.bk, how.chunks, how.total
        pixels, numbers = batch * places, batch * filters * out_sizes[0] * out_sizes[1] * out_sizes[2]
        seen = math.prod(how.phases) * pixels
        index = tl.int32 if max(x.numel(), seen * cp, numbers) < 2**31 else tl.int64
        out = torch.empty((batch, filters, *out_sizes[3 - dims:]), device="meta", memory_format=conv_format(x, weight))
        o_n, o_c, *o_strides = out.view(batch, filters, *out_sizes).stride()
        width, depth, be = triton.next_power_of_2(padded[2]), triton.next_power_of_2(cp), 256 if total <= 256 else 1024
        bp = min(width, 2048 // min(64, depth))
        bc = min(depth, 2048 // bp)
        images = math.prod(how.phases) * batch * padded[0] * padded[1] * triton.cdiv(padded[2], bp) * triton.cdiv(cp, bc)
        targets = triton.cdiv(pixels, 1024)
        bn = max(16, min(CONV_N, triton.next_power_of_2(rows)))
        rest = 0 if rows <= bn else max(16, min(CONV_REST, triton.next_power_of_2(rows - bn)))
        row_tiles, count = triton.cdiv(pixels, 128), split_multiprocessors(place[0])
        others = [(n, r) for n in (128, 64, 32) for r in (n, n // 2, 0) if n <= bn and r <= CONV_REST]
        bn, rest = split_widths(row_tiles, rows, count, (bn, rest), others)
        tiles = row_tiles * triton.cdiv(rows, bn + rest)
        # Whether eight pixels, from a multiple of eight on, are a sector of the result, for all images and filters.
        sectors = not transposed and (padded[2] - found[2]) % 8 == o_c % 8 == (places % 8 if batch > 1 else 0) == 0
        held, parts = conv_held(rows, bn + rest, total, bk) if row_tiles > count else (0, CONV_STAGES)
        self.batch, self.filters, self.pixels = batch, filters, pixels
        self.out_shape, self.out_strides = out.shape, out.stride()
        x_plane, w_plane = (seen + joined - 1) * cp, rows * total
        planes = 1 + CONV_FP8  # of lo; in fp8 with hi beside it
        small = torch.float8_e4m3fn if CONV_FP8 else torch.float16
        listed, places_of = split_index(x.numel()), torch.int32 if index == tl.int32 else torch.int64
        self.room = Room((torch.float16, x_plane), (small, planes * x_plane), (torch.float16, w_plane),
                         (small, planes * w_plane), (listed, x.numel()), (places_of, pixels), (torch.int32, pixels),
                         (torch.float32, pixels))
        behind = CONV_FP8 * (seen + joined - 1)
        self.x_views = [((seen + more, joined * cp), (cp, 1), (64, bk)) for more in (0, behind)]
        self.w_views = [((planes * rows if lo else rows, total), (total, 1), (width, bk))
                        for width in (bn, rest or bn) for lo in (False, True)]
        self.tops = conv_tops(x, weight, transposed, count)
        self.pairs = PlannedLaunch(
            conv_pairs, (images + targets + rows * triton.cdiv(total, be),),
            (images, targets, pixels, channels, *sizes, *full.stride(), *padded, how.octets,
             *(how.step if how.phased else how.fold), *how.lead, *own_taps, *own.stride(), *groups, joined,
             chunks * bk // 16, *out_sizes, *crop, o_n, *o_strides, CONV_FP8 * x_plane,
             CONV_FP8 * w_plane, *how.phases, *how.first, *dilation), S_D=steps[0], S_H=steps[1], S_W=steps[2],
            TURNED=transposed, DIMS=dims, INDEX=index, BP=bp, BC=bc, BM=1024, BE=be, FP8=CONV_FP8, PHASED=how.phased)
        self.gemm = PlannedLaunch(
            conv_gemm, (min(tiles, count),),
            (tiles, pixels, rows, joined, *padded[1:], *dilation, o_c, *o_strides, chunks),
            U_D=groups[0], U_H=groups[1], U_W=groups[2], S_D=steps[0], S_H=steps[1], S_W=steps[2], INDEX=index,
            HAS_BIAS=has_bias, EPILOGUE=epilogue, BN=bn, REST=rest, BK=bk, STAGES=CONV_STAGES, FP8=CONV_FP8,
            HELD=held, PARTS=parts, TURN=o_strides[-1] == 1 < o_c and not sectors, num_warps=4,
            **dict(zip(("F_D", "F_H", "F_W", "P_D", "P_H", "P_W", "B_D", "B_H", "B_W"),
                       (*how.step, *how.phases, *how.first))))
        self.spread = PlannedLaunch(
            conv_spread, (256,),
            (channels, *sizes, filters, *out_sizes, *own_taps, *stride, *dilation, *padding, *full.stride(), *own.stride(),
             o_n, o_c, *o_strides), TURNED=transposed, BLOCK=128)
        self.finish = None
        if epilogue:
            self.finish = PlannedLaunch(
                split_finish, (256,), (1, numbers, filters, numbers // (batch * filters)), EPILOGUE=epilogue, BLOCK=1024)
        self.call = PlannedCall(self.launches)

    def launches(self, stream, count, room, x, weight, bias, out, *extras):
        # How many are listed; tops of samples and filters; those who are done, and room to count exponents.
        first = (1, 1 + self.batch, 1 + self.batch + self.filters, 1 + 2 * self.batch + self.filters)
        top_x, top_w, done, exponents = (Pointer(count.address + 4 * at, torch.int32) for at in first)
        xh, xl, wh, wl, listed, where, real, inverse = self.room.at(room.address)
        descriptors = [split_descriptor(part, *view) for part, view in zip((xh, xl), self.x_views)]
        descriptors += [split_descriptor(part, *view) for part, view in zip((wh, wl, wh, wl), self.w_views)]
        found = [self.tops.at(stream, x, weight, top_x, top_w, exponents, done),
                 self.pairs.at(stream, x, weight, top_x, top_w, xh, xl, wh, wl, count, listed, where, real, inverse),
                 self.gemm.at(stream, *descriptors, top_w, where, real, inverse, bias, out, count, *extras),
                 self.spread.at(stream, count, listed, x, weight, out)]
        return found if self.finish is None else [*found, self.finish.at(stream, count, out, *extras)]

    def __call__(self, x, weight, bias, extras):
        count = torch.zeros(1 + self.batch * 258 + self.filters, device=x.device, dtype=torch.int32)
        room = torch.empty(self.room.size, device=x.device, dtype=torch.uint8)
        out = torch.empty_strided(self.out_shape, self.out_strides, device=x.device, dtype=torch.float32)
        self.call(count, room, x, weight, out if bias is None else bias, out, *(*extras, *4 * (out,))[:4])
        return out


split_convolution_of = functools.lru_cache(maxsize=None)(SplitConvolution)


def split_convolution(x, weight, *, stride, padding, dilation, transposed, output_padding, groups, bias, epilogue=0,
                      extras=()):
    """As extern_kernels.convolution, in 1, 2 or 3 dimensions; with `epilogue`, what `split_epilogue` makes of that."""
    if not conv_fits(x, weight, transposed, groups, dilation, stride):
        return torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    found = split_convolution_of(
        place_of(x, weight, bias, *extras), x.shape, x.stride(), weight.shape, weight.stride(), bias is not None,
        tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), epilogue)
    if found.dense:
        return found(x, weight, bias, extras)
    return split_convolution(
        x.contiguous(), weight.contiguous(), stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups, bias=bias, epilogue=epilogue, extras=extras)
