SMALL_F = 64  # tune: 32, 64, 128
SMALL_P = 64  # tune: 64, 128
SMALL_STAGES = 3  # tune: 2, 3, 4
SMALL_GROUPS = 2  # tune: 2, 1


@gluon.jit
def tf32_low(v):
    # What TF32, whose multipliers cut off 13 bits, leaves of a number, rounded to TF32. Of an infinity it is NaN.
    low = v - (v.to(gl.int32, bitcast=True) & -0x2000).to(gl.float32, bitcast=True)
    return (low.to(gl.int32, bitcast=True) + 0x1000).to(gl.float32, bitcast=True)


@gluon.jit
def small_tap(k, H, W, x_c, TAPS: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr, A_D: gl.constexpr,
              A_H: gl.constexpr, A_W: gl.constexpr, INDEX: gl.constexpr, TOGETHER: gl.constexpr):
    # Where a number of a filter reads, from the first that its output reads, and its tap.
    if TOGETHER > 1:
        return gl.multiple_of(k.to(INDEX) * x_c, TOGETHER), k * 0
    c, tap = k // TAPS, k % TAPS
    k_d, k_h, k_w = tap // (U_H * U_W) * A_D, tap // U_W % U_H * A_H, tap % U_W * A_W
    return c.to(INDEX) * x_c + ((k_d * H + k_h) * W + k_w), tap


@gluon.jit
def small_start(m, M, D, H, W, OD, OH, OW, x_n, TAPS: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr,
                S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr,
                P_W: gl.constexpr, A_D: gl.constexpr, A_H: gl.constexpr, A_W: gl.constexpr, INDEX: gl.constexpr,
                TOGETHER: gl.constexpr):
    # Where each output begins to read, and a bit for each tap that lies in its image. TOGETHER: so many outputs that
    # follow each other read numbers that do, too, and lie in one image.
    pixels = OD * OH * OW
    image, pixel = m // pixels, m % pixels
    if TOGETHER > 1:
        first = gl.max_contiguous(gl.multiple_of(image.to(INDEX) * x_n + pixel, TOGETHER), TOGETHER)
        return first, gl.max_constancy((m < M).to(gl.int32), TOGETHER)
    d, h, w = pixel // (OH * OW) * S_D - P_D, pixel // OW % OH * S_H - P_H, pixel % OW * S_W - P_W
    bits = gl.zeros_like(m)
    for tap in gl.static_range(TAPS):
        at_d, at_h, at_w = d + tap // (U_H * U_W) * A_D, h + tap // U_W % U_H * A_H, w + tap % U_W * A_W
        inside = (m < M) & (at_d >= 0) & (at_d < D) & (at_h >= 0) & (at_h < H) & (at_w >= 0) & (at_w < W)
        bits |= inside.to(gl.int32) << tap
    return image.to(INDEX) * x_n + ((d * H + h) * W + w), bits


@gluon.jit
def small_copy(x_ptr, w_ptr, x_slot, w_slot, first, K, N, n0, start, bits, H, W, x_c, TAPS: gl.constexpr,
               U_H: gl.constexpr, U_W: gl.constexpr, A_D: gl.constexpr, A_H: gl.constexpr, A_W: gl.constexpr,
               INDEX: gl.constexpr, TOGETHER: gl.constexpr, BF: gl.constexpr, BK: gl.constexpr, of_x: gl.constexpr,
               of_w: gl.constexpr):
    # Sends for the numbers [k] of each output, where they lie, and for those of each filter.
    k = first + gl.arange(0, BK, layout=gl.SliceLayout(1, of_x))
    at, tap = small_tap(k, H, W, x_c, TAPS, U_H, U_W, A_D, A_H, A_W, INDEX, TOGETHER)
    known = (k < K)[:, None] & ((bits[None, :] >> tap[:, None]) & 1 != 0)
    async_copy.async_copy_global_to_shared(x_slot, x_ptr + (at[:, None] + start[None, :]), mask=known)
    k = first + gl.arange(0, BK, layout=gl.SliceLayout(0, of_w))
    n = n0 + gl.arange(0, BF, layout=gl.SliceLayout(1, of_w))
    known = (n < N)[:, None] & (k < K)[None, :]
    async_copy.async_copy_global_to_shared(w_slot, w_ptr + (n[:, None] * K + k[None, :]), mask=known)
    async_copy.commit_group()


@gluon.jit
def small_part(x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, TAPS: gl.constexpr,
               U_H: gl.constexpr, U_W: gl.constexpr, S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr,
               P_D: gl.constexpr, P_H: gl.constexpr, P_W: gl.constexpr, A_D: gl.constexpr, A_H: gl.constexpr,
               A_W: gl.constexpr, INDEX: gl.constexpr, TOGETHER: gl.constexpr, BF: gl.constexpr, BP: gl.constexpr,
               BK: gl.constexpr, STAGES: gl.constexpr, PART: gl.constexpr, GROUPS: gl.constexpr):
    # Every GROUPS-th chunk's products, from chunk PART on, with a ring of its own. Warps hold the outputs' numbers as
    # they multiply them; what TF32 leaves of the filters' lies beside them. Three of four products, small ones first.
    WARPS: gl.constexpr = BP // 16
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BF, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, layout, k_width=1)
    of_x: gl.constexpr = gl.BlockedLayout([1, TOGETHER], [2, 16] if TOGETHER > 1 else [1, 32], [WARPS, 1], [1, 0])
    of_w: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [WARPS, 1], [1, 0])
    m = m0 + gl.arange(0, BP, layout=gl.SliceLayout(0, of_x))
    start, bits = small_start(m, M, D, H, W, OD, OH, OW, x_n, TAPS, U_H, U_W, S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H, A_W,
                              INDEX, TOGETHER)
    own = PART * STAGES
    for ahead in gl.static_range(STAGES - 1):
        first = (PART + ahead * GROUPS) * BK
        small_copy(x_ptr, w_ptr, x_slots.index(own + ahead), w_slots.index(own + ahead), first, K, N, n0, start, bits, H, W,
                   x_c, TAPS, U_H, U_W, A_D, A_H, A_W, INDEX, TOGETHER, BF, BK, of_x, of_w)
    acc = gl.zeros([BP, BF], gl.float32, layout)
    for step in range(gl.cdiv(gl.cdiv(K, BK) - PART, GROUPS)):
        slot, later = own + step % STAGES, step + STAGES - 1
        async_copy.wait_group(STAGES - 2)
        x = x_slots.index(slot).permute((1, 0)).load(left)
        lows.index(PART).store(tf32_low(w_slots.index(slot).load(of_w)))
        x_low = tf32_low(x)
        fence_async_shared()
        w, w_low = w_slots.index(slot).permute((1, 0)), lows.index(PART).permute((1, 0))
        part = warpgroup_mma(x_low, w, gl.zeros([BP, BF], gl.float32, layout), use_acc=False, is_async=True)
        part = warpgroup_mma(x, w_low, part, is_async=True)
        part = warpgroup_mma(x, w, part, is_async=True)
        small_copy(x_ptr, w_ptr, x_slots.index(own + later % STAGES), w_slots.index(own + later % STAGES),
                   (PART + later * GROUPS) * BK, K, N, n0, start, bits, H, W, x_c, TAPS, U_H, U_W, A_D, A_H, A_W, INDEX,
                   TOGETHER, BF, BK, of_x, of_w)
        acc += warpgroup_mma_wait(0, deps=[part, x, x_low])[0]  # tensor cores truncate: sums are added outside of them
    async_copy.wait_group(0)
    return (acc,)  # as `warp_specialize` wants it


@gluon.jit
def small_other(sums, x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c,
                TAPS: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr, S_D: gl.constexpr, S_H: gl.constexpr,
                S_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr, P_W: gl.constexpr, A_D: gl.constexpr,
                A_H: gl.constexpr, A_W: gl.constexpr, INDEX: gl.constexpr, TOGETHER: gl.constexpr, BF: gl.constexpr,
                BP: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, PART: gl.constexpr, GROUPS: gl.constexpr):
    sums.store(small_part(x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, TAPS, U_H,
                          U_W, S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H, A_W, INDEX, TOGETHER, BF, BP, BK, STAGES, PART,
                          GROUPS)[0])


@gluon.jit(do_not_specialize=["M", "H", "W", "OH", "OW", "x_n", "x_c", "o_n", "o_c"])
def small_multiply(x_ptr, w_ptr, bias_ptr, out_ptr, e0, e1, e2, e3, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, o_n, o_c,
                   TAPS: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr, S_D: gl.constexpr, S_H: gl.constexpr,
                   S_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr, P_W: gl.constexpr, A_D: gl.constexpr,
                   A_H: gl.constexpr, A_W: gl.constexpr, HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr,
                   INDEX: gl.constexpr, TOGETHER: gl.constexpr, BF: gl.constexpr, BP: gl.constexpr, BK: gl.constexpr,
                   STAGES: gl.constexpr, GROUPS: gl.constexpr):
    # Outputs times filters in one launch: nothing is written but the result. Two GROUPS of warps share the chunks of long
    # sums: each waits for its copies and products while the other one works.
    WARPS: gl.constexpr = BP // 16
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BF, 8])
    of_tile: gl.constexpr = gl.NVMMASharedLayout(128, 32, 2)
    x_slots = gl.allocate_shared_memory(gl.float32, [GROUPS * STAGES, BK, BP], gl.SwizzledSharedLayout(8, 1, 4, [1, 0]))
    w_slots = gl.allocate_shared_memory(gl.float32, [GROUPS * STAGES, BF, BK], of_tile)
    lows = gl.allocate_shared_memory(gl.float32, [GROUPS, BF, BK], of_tile)
    blocks = gl.cdiv(N, BF)
    n0, m0 = gl.program_id(0) % blocks * BF, gl.program_id(0) // blocks * BP
    if GROUPS > 1:
        sums = gl.allocate_shared_memory(gl.float32, [BP, BF], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
        acc = gl.warp_specialize([
            (small_part, (x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, TAPS, U_H,
                          U_W, S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H, A_W, INDEX, TOGETHER, BF, BP, BK, STAGES, 0, GROUPS)),
            (small_other, (sums, x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, TAPS,
                           U_H, U_W, S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H, A_W, INDEX, TOGETHER, BF, BP, BK, STAGES, 1,
                           GROUPS)),
        ], [WARPS], [240 if WARPS == 4 else 120])[0]
        acc += sums.load(layout)
    else:
        acc = small_part(x_ptr, w_ptr, x_slots, w_slots, lows, m0, n0, M, N, K, D, H, W, OD, OH, OW, x_n, x_c, TAPS, U_H, U_W,
                         S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H, A_W, INDEX, TOGETHER, BF, BP, BK, STAGES, 0, 1)[0]
    value = acc
    n = n0 + gl.arange(0, BF, layout=gl.SliceLayout(0, layout))
    m = m0 + gl.arange(0, BP, layout=gl.SliceLayout(1, layout))
    inside = (m < M)[:, None] & (n < N)[None, :]
    lost = gl.where(inside & ((value - value) != 0.0), 1, 0)
    if gl.max(gl.max(lost, 1), 0) > 0:  # an infinity, NaN, or too large a sum: once more, in fp32
        value = gl.zeros([BP, BF], gl.float32, layout)
        again, seen = small_start(m, M, D, H, W, OD, OH, OW, x_n, TAPS, U_H, U_W, S_D, S_H, S_W, P_D, P_H, P_W, A_D, A_H,
                                  A_W, INDEX, 1)
        for k in range(K):
            at, tap = small_tap(k, H, W, x_c, TAPS, U_H, U_W, A_D, A_H, A_W, INDEX, 1)
            x = gl.load(x_ptr + (again + at), mask=(seen >> tap) & 1 != 0, other=0.0)
            value += x[:, None] * gl.load(w_ptr + (n * K + k), mask=n < N, other=0.0)[None, :]
    if HAS_BIAS:
        value += gl.load(bias_ptr + n, mask=n < N, other=0.0)[None, :]
    pixels = OD * OH * OW
    to = ((m // pixels).to(INDEX) * o_n + m % pixels)[:, None] + n.to(INDEX)[None, :] * o_c
    if EPILOGUE > 0:
        value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, to, inside, n[None, :], (n < N)[None, :])
    gl.store(out_ptr + to, value, mask=inside)


def small_tile(filters, outputs, count):
    """Filters and outputs of a program: no more than declared, and few enough for all multiprocessors to have one."""
    bf = min(SMALL_F, max(32, triton.next_power_of_2(filters)))
    bp = min(SMALL_P, max(64, triton.next_power_of_2(outputs)))
    while bf * bp > 32 * 64 and triton.cdiv(filters, bf) * triton.cdiv(outputs, bp) < count:
        bf, bp = (bf // 2, bp) if bf > 32 else (bf, bp // 2)
    return bf, bp


def small_groups(bf, bp, numbers, programs, count):
    """Groups of warps for sums of so many numbers: two for long ones, if their rings fit into shared memory and each
    multiprocessor has one program; several programs wait for each other's copies as well.
    """
    rings = 2 * 128 * (SMALL_STAGES * (bf + bp) + bf) + 4 * bf * bp
    return SMALL_GROUPS if numbers >= 256 and programs <= count and rings <= 229376 else 1


def small_fits(x, weight, transposed, groups):
    whole = x.is_contiguous() and x[0].numel() < 2**31 and weight.numel() < 2**31 and x.dim() > 2 and x.numel() > 0
    few = weight[0, 0].numel() < 32  # taps have a bit each
    return x.dtype == weight.dtype == torch.float32 and not transposed and groups == 1 and whole and few


class SmallConvolution:
    """What place, sizes and strides decide of a convolution that is one launch, in 1, 2 or 3 dimensions, and `epilogue`."""

    def __init__(self, place, x_shape, w_shape, has_bias, stride, padding, dilation, epilogue):
        batch, (filters, channels) = x_shape[0], w_shape[:2]
        sizes, taps, out_sizes, step, pad, apart = conv_sizes(x_shape, w_shape, stride, padding, dilation)
        self.out_shape = (batch, filters, *out_sizes[5 - len(x_shape):])
        pixels, numbers = math.prod(out_sizes), math.prod(taps)
        count = torch.cuda.get_device_properties(place[0]).multi_processor_count
        bf, bp = small_tile(filters, batch * pixels, count)
        large = batch * max(channels * math.prod(sizes), filters * pixels) >= 2**31 - 2**20
        alike = numbers == 1 and not any(pad) and all(x == 1 for x in step)
        together = 4 if alike and place[1] and pixels % 4 == 0 else 1
        programs = triton.cdiv(filters, bf) * triton.cdiv(batch * pixels, bp)
        self.multiply = PlannedLaunch(
            small_multiply, (programs,),
            (batch * pixels, filters, channels * numbers, *sizes, *out_sizes, channels * math.prod(sizes),
             math.prod(sizes), filters * pixels, pixels),
            TAPS=numbers, U_H=taps[1], U_W=taps[2], S_D=step[0], S_H=step[1], S_W=step[2], P_D=pad[0], P_H=pad[1],
            P_W=pad[2], A_D=apart[0], A_H=apart[1], A_W=apart[2], HAS_BIAS=has_bias, EPILOGUE=epilogue,
            INDEX=gl.int64 if large else gl.int32, TOGETHER=together, BF=bf, BP=bp, BK=32, STAGES=SMALL_STAGES,
            GROUPS=small_groups(bf, bp, channels * numbers, programs, count), num_warps=bp // 16)


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
