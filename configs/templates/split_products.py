SPLIT_N = 128  # tune: 64, 128
SPLIT_K = 64  # tune: 32, 64
SPLIT_STAGES = 2  # tune: 2, 3, 4
SPLIT_GROUP = 8  # tune: 1, 4, 8, 16
SPLIT_FP8 = 0  # tune: 0, 1
# tune if: (128 + 2 * SPLIT_N) * SPLIT_K * SPLIT_STAGES * 4 <= 229376


@gluon.jit
def split_inverse(top_ptr, at, mask, TOP: gl.constexpr = 268):
    # One over the power of two of a row.
    top = gl.load(top_ptr + at, mask=mask, other=0)
    return ((254 - gl.minimum(TOP - (top >> 23), 253)) << 23).to(gl.float32, bitcast=True)


@gluon.jit
def split_slots(desc, COUNT: gl.constexpr, FP8: gl.constexpr = 0):
    # Room in shared memory for so many tiles of a descriptor.
    if FP8:
        return gl.allocate_shared_memory(gl.float8e4nv, [COUNT, desc.block_shape[0], desc.block_shape[1]], desc.layout)
    else:
        return gl.allocate_shared_memory(gl.float16, [COUNT, desc.block_shape[0], desc.block_shape[1]], desc.layout)


@gluon.jit
def split_ring(STAGES: gl.constexpr):
    # Barriers of a ring of slots: one full, when its tiles have come; one empty, when both warpgroups have read them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    return full, empty


@gluon.jit
def split_add(acc, xh, xl, wh, wl, layout: gl.constexpr):
    # acc plus a chunk's products, the small ones first. Tensor cores truncate, so acc is added to outside of them.
    p = warpgroup_mma(xl, wh, gl.zeros(acc.shape, gl.float32, layout), use_acc=False, is_async=True)
    p = warpgroup_mma(xh, wl, p, is_async=True)
    p = warpgroup_mma(xh, wh, p, is_async=True)
    return acc + warpgroup_mma_wait(0, deps=[p])


@gluon.jit
def split_correct(acc, xh, x8, wh, w8, layout8: gl.constexpr, layout: gl.constexpr):
    # As `split_add`, where one product in fp8 has both small ones. The registers of both layouts are the same.
    p = warpgroup_mma(x8, w8, gl.zeros(acc.shape, gl.float32, layout8), use_acc=False, is_async=True)
    p = gl.convert_layout(warpgroup_mma_wait(0, deps=[p]), layout)
    p = warpgroup_mma(xh, wh, p, is_async=True)
    return acc + warpgroup_mma_wait(0, deps=[p])


@gluon.jit
def split_place(tile, M, N, GROUP: gl.constexpr, BN: gl.constexpr):
    # The batch, first row and first column of a tile, in groups of rows of tiles.
    tiles_m, tiles_n = gl.cdiv(M, 128), gl.cdiv(N, 2 * BN)
    batch = tile // (tiles_m * tiles_n)
    tile -= batch * tiles_m * tiles_n
    group = tile // (GROUP * tiles_n)
    rows = gl.minimum(tiles_m - group * GROUP, GROUP)
    place = tile % (GROUP * tiles_n)
    return batch, (group * GROUP + place % rows) * 128, place // rows * (2 * BN)


@gluon.jit
def split_load(a_desc, b_desc, a_slots, b_slots, slot, bar, m0, n0, k_a, k_b, a_plane, b_plane, k_plane,
               BN: gl.constexpr, A_K: gl.constexpr, B_K: gl.constexpr):
    # Two tiles of 64 rows of a, and two of BN columns of b, whichever axis lies side by side in memory.
    for half in gl.static_range(2):
        at_a = [a_plane + m0 + half * 64, k_a] if A_K else [k_plane + k_a, m0 + half * 64]
        tma.async_copy_global_to_shared(a_desc, at_a, bar, a_slots.index(2 * slot + half))
        at_b = [b_plane + n0 + half * BN, k_b] if B_K else [k_plane + k_b, n0 + half * BN]
        tma.async_copy_global_to_shared(b_desc, at_b, bar, b_slots.index(2 * slot + half))


@gluon.jit
def split_loads(ah_desc, al_desc, bh_desc, bl_desc, ah_slots, al_slots, bh_slots, bl_slots, full, empty, tiles, M, N,
                KP, A_K: gl.constexpr, B_K: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
                STAGES: gl.constexpr, FP8: gl.constexpr):
    # One warp fills the ring. In fp8 are two numbers for each of fp16.
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, m0, n0 = split_place(tile, M, N, GROUP, BN)
        for k in range(0, KP, BK):
            slot = step % STAGES
            mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
            bar = full.index(slot)
            mbarrier.expect(bar, (128 + 2 * BN) * BK * 4)
            small = k * (1 + FP8)
            split_load(al_desc, bh_desc, al_slots, bh_slots, slot, bar, m0, n0, small, k, batch * M, batch * N,
                       batch * KP, BN, A_K, B_K)
            split_load(ah_desc, bl_desc, ah_slots, bl_slots, slot, bar, m0, n0, k, small, batch * M, batch * N,
                       batch * KP, BN, A_K, B_K)
            step += 1


@gluon.jit
def split_write(acc, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0, n0, M, N, c_batch, c_m, c_n,
                o_batch, o_m, o_n, alpha, beta, HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, layout: gl.constexpr,
                BN: gl.constexpr, TOP: gl.constexpr):
    m = m0 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    n = n0 + gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    inside = (m < M)[:, None] & (n < N)[None, :]
    inverse_a = split_inverse(ta_ptr, batch * M + m, m < M, TOP)
    value = acc * (inverse_a[:, None] * split_inverse(tb_ptr, batch * N + n, n < N, TOP)[None, :])
    batch, m, n = batch.to(gl.int64), m.to(gl.int64), n.to(gl.int64)
    if HAS_C:
        c = gl.load(c_ptr + batch * c_batch + m[:, None] * c_m + n[None, :] * c_n, mask=inside, other=0.0)
        value = alpha * value + beta * c
    at = batch * o_batch + m[:, None] * o_m + n[None, :] * o_n
    if EPILOGUE > 0:
        # What is listed is added to the results later, and what follows the product waits for it (`split_finish`).
        if gl.load(count_ptr) + gl.load(count_ptr + 1) == 0:
            value = split_epilogue(EPILOGUE, value, e0, e1, e2, e3, at, inside, n[None, :], (n < N)[None, :])
    gl.store(out_ptr + at, value, mask=inside)


@gluon.jit
def split_multiply(WG: gl.constexpr, ah_slots, al_slots, bh_slots, bl_slots, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr,
                   count_ptr, e0, e1, e2, e3, tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta,
                   A_K: gl.constexpr, B_K: gl.constexpr, HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, BN: gl.constexpr,
                   BK: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, FP8: gl.constexpr):
    # One of two warpgroups: 64 rows of a tile, and two halves of BN columns. While one adds, the other multiplies.
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 32])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        batch, m0, n0 = split_place(tile, M, N, GROUP, BN)
        acc0 = gl.zeros([64, BN], gl.float32, layout)
        acc1 = gl.zeros([64, BN], gl.float32, layout)
        for _k in range(0, KP, BK):
            slot = step % STAGES
            mbarrier.wait(full.index(slot), (step // STAGES) & 1)
            ah, al = ah_slots.index(2 * slot + WG), al_slots.index(2 * slot + WG)
            b0h, b0l = bh_slots.index(2 * slot), bl_slots.index(2 * slot)
            b1h, b1l = bh_slots.index(2 * slot + 1), bl_slots.index(2 * slot + 1)
            if not A_K:
                ah, al = ah.permute((1, 0)), al.permute((1, 0))
            if B_K:
                b0h, b0l, b1h, b1l = b0h.permute((1, 0)), b0l.permute((1, 0)), b1h.permute((1, 0)), b1l.permute((1, 0))
            if FP8:
                acc0 = split_correct(acc0, ah, al, b0h, b0l, layout8, layout)
                acc1 = split_correct(acc1, ah, al, b1h, b1l, layout8, layout)
            else:
                acc0 = split_add(acc0, ah, al, b0h, b0l, layout)
                acc1 = split_add(acc1, ah, al, b1h, b1l, layout)
            mbarrier.arrive(empty.index(slot), count=1)
            step += 1
        split_write(acc0, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0 + WG * 64, n0, M, N,
                    c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, HAS_C, EPILOGUE, layout, BN, 268 - FP8)
        split_write(acc1, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, batch, m0 + WG * 64, n0 + BN, M, N,
                    c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, HAS_C, EPILOGUE, layout, BN, 268 - FP8)


@gluon.jit
def split_gemm(ah_desc, al_desc, bh_desc, bl_desc, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3, tiles, M, N,
               KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K: gl.constexpr, B_K: gl.constexpr,
               HAS_C: gl.constexpr, EPILOGUE: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
               STAGES: gl.constexpr, FP8: gl.constexpr):
    # out = alpha a b + beta c, and what follows it, by one program for each multiprocessor. With FP8, al and bl have
    # both parts, in fp8.
    ah = split_slots(ah_desc, 2 * STAGES)
    al = split_slots(al_desc, 2 * STAGES, FP8)
    bh = split_slots(bh_desc, 2 * STAGES)
    bl = split_slots(bl_desc, 2 * STAGES, FP8)
    full, empty = split_ring(STAGES)
    gl.warp_specialize([
        (split_multiply, (0, ah, al, bh, bl, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3,
                          tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K, B_K, HAS_C, EPILOGUE, BN,
                          BK, GROUP, STAGES, FP8)),
        (split_multiply, (1, ah, al, bh, bl, full, empty, ta_ptr, tb_ptr, c_ptr, out_ptr, count_ptr, e0, e1, e2, e3,
                          tiles, M, N, KP, c_batch, c_m, c_n, o_batch, o_m, o_n, alpha, beta, A_K, B_K, HAS_C, EPILOGUE, BN,
                          BK, GROUP, STAGES, FP8)),
        (split_loads, (ah_desc, al_desc, bh_desc, bl_desc, ah, al, bh, bl, full, empty, tiles, M, N, KP, A_K, B_K, BN,
                       BK, GROUP, STAGES, FP8)),
    ], [4, 1], [240, 24])


def split_view(part, shape, block):
    """What TMA needs of hi or lo [planes, rows, numbers]; fp8 has two numbers in the place of one of fp16."""
    (planes, rows, width), each = shape, 2 // part.dtype.itemsize
    return split_descriptor(part, (planes * rows, width * each), (width * each, 1), (block[0], block[1] * each))


def split_multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def split_widths(row_tiles, columns, count, widest, others):
    """Columns of a tile, in two parts: the widest, or of the narrower others what ends first a product of fewer tiles
    than multiprocessors.

    A tile takes as long as its tensor cores, 1.8 for a column, or as its copies, of which one row or column takes 1.
    """
    def time(parts):
        tiles = row_tiles * triton.cdiv(columns, sum(parts))
        return triton.cdiv(tiles, count) * max(1.8 * sum(parts), 128 + sum(parts))

    few = row_tiles * triton.cdiv(columns, sum(widest)) < count
    narrower = [parts for parts in others if sum(parts) < sum(widest)]
    return min((widest, *narrower), key=time) if few else widest


class SplitProduct:
    """What place, sizes and strides decide of out = alpha a b + beta c, and `epilogue`; b is given as [batch, N, K]."""

    def __init__(self, place, a_shape, a_strides, b_shape, b_strides, c_strides, o_strides, alpha, beta, epilogue):
        (batch, M, K), N = a_shape, b_shape[1]
        kp = triton.cdiv(K, SPLIT_K) * SPLIT_K
        self.counted = 2 + batch * M
        self.zeros = self.counted + batch * N
        # Tensor cores take fp8 with k side by side only.
        a_major, a_tile, a_halves = split_shape(a_shape, a_strides, kp, SPLIT_FP8)
        b_major, b_tile, b_halves = split_shape(b_shape, b_strides, kp, SPLIT_FP8)
        tiles = dict(A_BR=a_tile[0], A_BK=a_tile[1], B_BR=b_tile[0], B_BK=b_tile[1])
        # Whole rows find their largest when they are split.
        a_programs, a_steps = (0, 0) if a_tile[0] == 1 else split_programs(batch, M, K, a_tile)
        b_programs, b_steps = (0, 0) if b_tile[0] == 1 else split_programs(batch, N, K, b_tile)
        a_chunks, b_chunks = (batch * triton.cdiv(rows, br) * (1 if br == 1 else kp // bk)
                              for rows, (br, bk) in ((M, a_tile), (N, b_tile)))
        self.tops = None
        if a_programs + b_programs:
            self.tops = PlannedLaunch(
                split_tops, (a_programs + b_programs,),
                (a_programs, M, M, K, *a_strides, a_steps, N, N, K, *b_strides, b_steps), USUAL=False, **tiles)
        self.pairs = PlannedLaunch(
            split_pairs, (a_chunks + b_chunks,),
            (a_chunks, M, N, K, kp, *a_strides, *b_strides, *split_halves_strides(a_halves, a_major),
             *split_halves_strides(b_halves, b_major)), CHUNK=SPLIT_K * SPLIT_FP8, **tiles)
        index_a, index_b = split_index(batch * M * K), split_index(batch * N * K)
        row_tiles, count = batch * triton.cdiv(M, 128), split_multiprocessors(place[0])
        bn, _ = split_widths(row_tiles, N, count, (SPLIT_N, SPLIT_N), [(64, 64)])
        a_view = a_halves, (64, SPLIT_K) if a_major else (SPLIT_K, 64)
        b_view = b_halves, (bn, SPLIT_K) if b_major else (SPLIT_K, bn)
        self.views = (a_view, a_view, b_view, b_view)
        kinds = 2 * (torch.float16, torch.float8_e4m3fn if SPLIT_FP8 else torch.float16)
        halves = [(kind, math.prod(shape) * 2 // kind.itemsize) for kind, (shape, _) in zip(kinds, self.views)]
        self.room = Room((index_a, batch * M * K), (index_b, batch * N * K), *halves)
        tiles = row_tiles * triton.cdiv(N, 2 * bn)
        self.gemm = PlannedLaunch(
            split_gemm, (min(tiles, count),),
            (tiles, M, N, kp, *(c_strides or (0, 0, 0)), *o_strides, alpha, beta), A_K=a_major, B_K=b_major,
            HAS_C=c_strides is not None, EPILOGUE=epilogue, BN=bn, BK=SPLIT_K, GROUP=SPLIT_GROUP, STAGES=SPLIT_STAGES,
            FP8=SPLIT_FP8, num_warps=4)
        other = (b_strides[0], b_strides[2], b_strides[1])
        self.spreads = PlannedLaunch(
            split_spreads, (256,), (M, N, K, *a_strides, *other, *o_strides, alpha), BLOCK=1024)
        self.finish = None
        if epilogue:
            self.finish = PlannedLaunch(split_finish, (256,), (2, batch * M * N, N, 1), EPILOGUE=epilogue, BLOCK=1024)
        self.call = PlannedCall(self.launches)

    def launches(self, stream, zeros, room, a, bt, c, out, *extras):
        top_a, top_b = (Pointer(zeros.address + 4 * first, torch.int32) for first in (2, self.counted))
        a_list, b_list, *pairs = self.room.at(room.address)
        descriptors = [split_view(part, *view) for part, view in zip(pairs, self.views)]
        found = [] if self.tops is None else [self.tops.at(stream, a, bt, top_a, top_b, top_a, top_a)]
        found += [self.pairs.at(stream, a, bt, top_a, top_b, *pairs, zeros, a_list, b_list),
                  self.gemm.at(stream, *descriptors, top_a, top_b, c, out, zeros, *extras),
                  self.spreads.at(stream, zeros, a_list, b_list, a, bt, out)]
        return found if self.finish is None else [*found, self.finish.at(stream, zeros, out, *extras)]

    def __call__(self, a, bt, c, out, extras):
        zeros = torch.zeros(self.zeros, device=a.device, dtype=torch.int32)
        room = torch.empty(self.room.size, device=a.device, dtype=torch.uint8)
        self.call(zeros, room, a, bt, out if c is None else c, out, *(*extras, *4 * (out,))[:4])
        return out


split_product_of = functools.lru_cache(maxsize=None)(SplitProduct)


def split_product(a, b, out, c=None, alpha=1.0, beta=1.0, epilogue=0, extras=()):
    """out = alpha a b + beta c for fp32 a [batch, M, K], b [batch, K, N], c and out [batch, M, N] of any strides.

    With `epilogue`, what `split_epilogue` makes of that; out is contiguous then.
    """
    bt = b.mT
    product = split_product_of(
        place_of(a, b, c, out, *extras), a.shape, a.stride(), bt.shape, bt.stride(), None if c is None else c.stride(),
        out.stride(), alpha, beta, epilogue)
    return product(a, bt, c, out, extras)


def split_mm(a, b, *, out):
    return split_product(a[None], b[None], out[None])[0]


def split_addmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a[None], b[None], out[None], c.expand(out.shape)[None], float(alpha), float(beta))[0]


def split_bmm(a, b, *, out):
    return split_product(a, b, out)


def split_baddbmm(c, a, b, *, beta=1, alpha=1, out):
    return split_product(a, b, out, c.expand(out.shape), float(alpha), float(beta))
