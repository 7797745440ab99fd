CONV_N = 128  # tune: 32, 64, 128
CONV_REST = 128  # tune: 16, 32, 64, 128
CONV_K = 32  # tune: 16, 32, 64
CONV_STAGES = 4  # tune: 2, 3, 4, 6
CONV_FP8 = 0  # tune: 0, 1
CONV_SECTORS = 1  # tune: 1, 2, 0
# tune if: (128 + CONV_N + CONV_REST) * CONV_K * CONV_STAGES * 4 <= 212992


@gluon.jit
def conv_store(acc, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0, n0,
               pixels, N, o_c, o_d, o_h, o_w, S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr,
               INDEX: gl.constexpr, HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr, layout: gl.constexpr, BN: gl.constexpr,
               FOLD: gl.constexpr, TOP: gl.constexpr):
    # Column n is output n % steps of a step, of filter n // steps. FOLD outputs beside each other may be rows instead.
    j = gl.arange(0, 64 * FOLD, layout=gl.SliceLayout(1, layout))
    m, n = m0 + j // FOLD, n0 + FOLD * gl.arange(0, BN // FOLD, layout=gl.SliceLayout(0, layout))
    f, step = n // (S_D * S_H * S_W), n % (S_D * S_H * S_W)
    inverse = gl.load(inverse_ptr + m, mask=m < pixels, other=0.0)
    value = acc * (inverse[:, None] * split_inverse(top_w, f, n < N, TOP)[None, :])
    if HAS_BIAS:
        value += gl.load(bias_ptr + f, mask=n < N, other=0.0)[None, :]
    at_d, at_h, at_w = step // (S_H * S_W), step // S_W % S_H, step % S_W
    at = f.to(INDEX) * o_c + at_d.to(INDEX) * o_d + at_h.to(INDEX) * o_h + at_w.to(INDEX) * o_w
    where = gl.load(where_ptr + m, mask=m < pixels, other=0) + j % FOLD * o_w
    real = gl.load(real_ptr + m, mask=m < pixels, other=0) >> j % FOLD
    kept = (n < N)[None, :] & ((real[:, None] >> step[None, :]) & 1 != 0)
    at = where[:, None] + at[None, :]
    if EPILOGUE > 0:
        # What is listed is added to the results later, and what follows the product waits for it (`split_finish`).
        if gl.load(count_ptr) == 0:
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, kept, f[None, :], (n < N)[None, :])
    gl.store(out_ptr + at, value, mask=kept)


@gluon.jit
def conv_write(acc, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0, n0,
               pixels, N, o_c, o_d, o_h, o_w, S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr,
               INDEX: gl.constexpr, HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr, layout: gl.constexpr, BN: gl.constexpr,
               TOP: gl.constexpr, TURN: gl.constexpr):
    # As the tensor cores leave them, threads of a warp have eight pixels of four filters: a sector of the memory each,
    # where pixels begin with sectors. Else parts of two, and TURN gives a warp 32 results that lie side by side.
    if TURN and BN > 32:
        left, right = acc.reshape([64, 2, BN // 2]).permute((0, 2, 1)).split()
        conv_write(left, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0, n0,
                   pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, layout, BN // 2, TOP, TURN)
        conv_write(right, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0,
                   n0 + BN // 2, pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, layout, BN // 2,
                   TOP, TURN)
    elif TURN:
        lines: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
        if S_W == 2:
            acc = acc.reshape([64, BN // 2, 2]).permute((0, 2, 1)).reshape([128, BN // 2])
        conv_store(gl.convert_layout(acc, lines), top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr,
                   e0, e1, e2, e3, m0, n0, pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, lines,
                   BN, 2 if S_W == 2 else 1, TOP)
    else:
        conv_store(acc, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0, n0,
                   pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, layout, BN, 1, TOP)


@gluon.jit
def conv_slot(chunk, slot, HELD: gl.constexpr):
    # Where a chunk of filters is: in a slot of its own, or in that of the ring.
    if HELD > 0:
        return gl.where(chunk < HELD, chunk, HELD + slot)
    else:
        return slot


@gluon.jit
def conv_loads(xh_desc, xl_desc, wh_desc, wl_desc, rest_h_desc, rest_l_desc, xh_slots, xl_slots, wh_slots, wl_slots,
               rest_h_slots, rest_l_slots, full, empty, tiles, tiles_n, chunks, JOINED, PH, PW, D_D, D_H, D_W, CHUNKS,
               pixels, w_rows, U_H: gl.constexpr, U_W: gl.constexpr, F_D: gl.constexpr, F_H: gl.constexpr,
               F_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr, P_W: gl.constexpr, B_D: gl.constexpr,
               B_H: gl.constexpr, B_W: gl.constexpr, BN: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr,
               STAGES: gl.constexpr, FP8: gl.constexpr, HELD: gl.constexpr):
    # One warp fills the ring. Each group of taps reads the same rows of pixels, shifted, of its own position of a step
    # of F, the first B behind its beginning. In fp8 lo has two planes. HELD chunks of filters come once, with the first tile.
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m0, n0 = tile // tiles_n * 128, tile % tiles_n * (BN + REST)
        for chunk in range(chunks):
            slot, group = step % STAGES, chunk // CHUNKS
            u_d, u_h, u_w = group // (U_H * U_W), group // U_W % U_H, group % U_W
            phase = (u_d % P_D * P_H + u_h % P_H) * P_W + u_w % P_W
            shift = ((u_d * D_D + B_D) // F_D * PH + (u_h * D_H + B_H) // F_H) * PW + (u_w * JOINED * D_W + B_W) // F_W
            row = m0 + phase * pixels + shift
            c = (chunk - group * CHUNKS) * BK
            mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
            bar, w_slot = full.index(slot), conv_slot(chunk, slot, HELD)
            fresh = (chunk >= HELD) | (tile == gl.program_id(0))
            mbarrier.expect(bar, (128 + BN + REST) * BK * 4, pred=fresh)
            if HELD > 0:
                mbarrier.expect(bar, 128 * BK * 4, pred=~fresh)
            for part in gl.static_range(2 + 2 * FP8):
                half, plane = part % 2, part // 2
                to = xl_slots.index((2 * slot + half) * (1 + FP8) + plane)
                at = row + plane * (P_D * P_H * P_W * pixels + JOINED - 1) + half * 64
                tma.async_copy_global_to_shared(xl_desc, [at, c], bar, to)
            tma.async_copy_global_to_shared(wh_desc, [n0, chunk * BK], bar, wh_slots.index(w_slot), pred=fresh)
            tma.async_copy_global_to_shared(xh_desc, [row, c], bar, xh_slots.index(2 * slot))
            tma.async_copy_global_to_shared(xh_desc, [row + 64, c], bar, xh_slots.index(2 * slot + 1))
            for plane in gl.static_range(1 + FP8):
                at, to = [n0 + plane * w_rows, chunk * BK], wl_slots.index(w_slot * (1 + FP8) + plane)
                tma.async_copy_global_to_shared(wl_desc, at, bar, to, pred=fresh)
            if REST > 0:
                to = rest_h_slots.index(w_slot)
                tma.async_copy_global_to_shared(rest_h_desc, [n0 + BN, chunk * BK], bar, to, pred=fresh)
                for plane in gl.static_range(1 + FP8):
                    at, to = [n0 + BN + plane * w_rows, chunk * BK], rest_l_slots.index(w_slot * (1 + FP8) + plane)
                    tma.async_copy_global_to_shared(rest_l_desc, at, bar, to, pred=fresh)
            step += 1


@gluon.jit
def conv_correct(acc, xh, x_slots, x_at, wh, w_slots, w_at, layout8: gl.constexpr, layout: gl.constexpr):
    # As `split_add`, with the small products in fp8, of one plane after the other.
    p = gl.zeros(acc.shape, gl.float32, layout8)
    p = warpgroup_mma(x_slots.index(x_at), w_slots.index(w_at).permute((1, 0)), p, use_acc=False, is_async=True)
    p = warpgroup_mma(x_slots.index(x_at + 1), w_slots.index(w_at + 1).permute((1, 0)), p, is_async=True)
    p = gl.convert_layout(warpgroup_mma_wait(0, deps=[p]), layout)
    p = warpgroup_mma(xh, wh, p, is_async=True)
    return acc + warpgroup_mma_wait(0, deps=[p])


@gluon.jit
def conv_multiply(WG: gl.constexpr, xh_slots, xl_slots, wh_slots, wl_slots, rest_h_slots, rest_l_slots, full, empty,
                  top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, tiles_n,
                  chunks, pixels, N, o_c, o_d, o_h, o_w, S_D: gl.constexpr, S_H: gl.constexpr, S_W: gl.constexpr,
                  INDEX: gl.constexpr, HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr, BN: gl.constexpr,
                  REST: gl.constexpr, STAGES: gl.constexpr, FP8: gl.constexpr, HELD: gl.constexpr,
                  TURN: gl.constexpr):
    # One of two warpgroups: 64 pixels of a tile, with BN and REST filters. While one adds, the other multiplies.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 32])
    if REST > 0:
        rest_layout: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, REST, 16])
        rest_layout8: gl.constexpr = gl.NVMMADistributedLayout(
            version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, REST, 32])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        m0, n0 = tile // tiles_n * 128 + WG * 64, tile % tiles_n * (BN + REST)
        acc = gl.zeros([64, BN], gl.float32, layout)
        if REST > 0:
            acc_rest = gl.zeros([64, REST], gl.float32, rest_layout)
        for chunk in range(chunks):
            slot = step % STAGES
            w_slot = conv_slot(chunk, slot, HELD)
            mbarrier.wait(full.index(slot), (step // STAGES) & 1)
            xh, wh = xh_slots.index(2 * slot + WG), wh_slots.index(w_slot).permute((1, 0))
            if FP8:
                acc = conv_correct(acc, xh, xl_slots, 4 * slot + 2 * WG, wh, wl_slots, 2 * w_slot, layout8, layout)
            else:
                xl, wl = xl_slots.index(2 * slot + WG), wl_slots.index(w_slot).permute((1, 0))
                acc = split_add(acc, xh, xl, wh, wl, layout)
            if REST > 0:
                rest_h = rest_h_slots.index(w_slot).permute((1, 0))
                if FP8:
                    acc_rest = conv_correct(acc_rest, xh, xl_slots, 4 * slot + 2 * WG, rest_h, rest_l_slots, 2 * w_slot,
                                            rest_layout8, rest_layout)
                else:
                    rest_l = rest_l_slots.index(w_slot).permute((1, 0))
                    acc_rest = split_add(acc_rest, xh, xl, rest_h, rest_l, rest_layout)
            mbarrier.arrive(empty.index(slot), count=1)
            step += 1
        conv_write(acc, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, m0, n0,
                   pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, layout, BN, 268 - FP8,
                   TURN)
        if REST > 0:
            conv_write(acc_rest, top_w, where_ptr, real_ptr, inverse_ptr, bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3,
                       m0, n0 + BN, pixels, N, o_c, o_d, o_h, o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, rest_layout,
                       REST, 268 - FP8, TURN)


@gluon.jit(do_not_specialize=["tiles", "pixels", "PH", "PW", "CHUNKS"],
           do_not_specialize_on_alignment=["JOINED", "D_D", "D_H", "D_W", "o_c", "o_d", "o_h", "o_w"])
def conv_gemm(xh_desc, xl_desc, wh_desc, wl_desc, rest_h_desc, rest_l_desc, top_w, where_ptr, real_ptr, inverse_ptr,
              bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, pixels, N, JOINED, PH, PW, D_D, D_H, D_W, o_c, o_d,
              o_h, o_w, CHUNKS, U_D: gl.constexpr, U_H: gl.constexpr, U_W: gl.constexpr, S_D: gl.constexpr,
              S_H: gl.constexpr, S_W: gl.constexpr, INDEX: gl.constexpr, HAS_BIAS: gl.constexpr, EPILOGUE: gl.constexpr,
              BN: gl.constexpr, REST: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, FP8: gl.constexpr,
              F_D: gl.constexpr, F_H: gl.constexpr, F_W: gl.constexpr, P_D: gl.constexpr, P_H: gl.constexpr,
              P_W: gl.constexpr, B_D: gl.constexpr, B_H: gl.constexpr, B_W: gl.constexpr, HELD: gl.constexpr, PARTS: gl.constexpr,
              TURN: gl.constexpr):
    # A convolution over padded images, and what follows it, by one program for each multiprocessor. Of PARTS slots for
    # filters the first HELD keep their chunks for all tiles.
    PLANES: gl.constexpr = 1 + FP8
    xh, xl = split_slots(xh_desc, 2 * STAGES), split_slots(xl_desc, 2 * STAGES * PLANES, FP8)
    wh, wl = split_slots(wh_desc, PARTS), split_slots(wl_desc, PARTS * PLANES, FP8)
    rest_h, rest_l = wh, wl
    if REST > 0:
        rest_h, rest_l = split_slots(rest_h_desc, PARTS), split_slots(rest_l_desc, PARTS * PLANES, FP8)
    full, empty = split_ring(STAGES)
    tiles_n, chunks = gl.cdiv(N, BN + REST), U_D * U_H * U_W * CHUNKS
    gl.warp_specialize([
        (conv_multiply, (0, xh, xl, wh, wl, rest_h, rest_l, full, empty, top_w, where_ptr, real_ptr, inverse_ptr,
                         bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, tiles_n, chunks, pixels, N, o_c, o_d, o_h,
                         o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, BN, REST, STAGES, FP8, HELD, TURN)),
        (conv_multiply, (1, xh, xl, wh, wl, rest_h, rest_l, full, empty, top_w, where_ptr, real_ptr, inverse_ptr,
                         bias_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, tiles_n, chunks, pixels, N, o_c, o_d, o_h,
                         o_w, S_D, S_H, S_W, INDEX, HAS_BIAS, EPILOGUE, BN, REST, STAGES, FP8, HELD, TURN)),
        (conv_loads, (xh_desc, xl_desc, wh_desc, wl_desc, rest_h_desc, rest_l_desc, xh, xl, wh, wl, rest_h, rest_l,
                      full, empty, tiles, tiles_n, chunks, JOINED, PH, PW, D_D, D_H, D_W, CHUNKS, pixels, N,
                      U_H, U_W, F_D, F_H, F_W, P_D, P_H, P_W, B_D, B_H, B_W, BN, REST, BK, STAGES, FP8, HELD)),
    ], [4, 1], [240, 24])
