# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:1/97 (text a07ca5135657c2ea)
# kernel      09ba6ace04d214b3, triton
# run         97-20261127-181445-561b, seed 0, generation 1
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 4.9e-05 against the fp64 truth (the reference's own: 2.3e-05)
# speedup     2.368 times PyTorch eager, 95 % interval 2.347 to 2.389
# times       9.935 ms; eager 23.53 ms in the same rounds
# KernelBench 2.79× over eager, 8.80 ms, eager 24.6 ms, by its way of timing (cuda_event), which includes slow launches
# launches    8 a call, for which the host needs 502 µs, eager 78.6 µs
# measured    2026-11-27 22:08 UTC
# again with  kbevolve evaluate level_1_problem_97_sample_0_kernel.py --problem kernelbench:1/97 --device cuda
#
# lineage, newest first:
#   09ba6ace04d214b3  g1    repair     2.349x  repair of wrong: Split once, then two TMA-fed products with one fp16 an…
#   a387bb25265ac143  g1    mutate         -   Split once, then two TMA-fed products with one fp16 and two fp8 parts (…
#   92bdd25491492ab8  g0    seed       1.927x  given: level_1_problem_97_sample_0_kernel.py
# ---- end of provenance ----

"""softmax(Q K^T / 32) V: operands split once, then three fp16 products, and one fp16 with two fp8, on tensor cores."""

import functools

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

STAGES = 4  # tune: 3, 4
ROW_WARPS = 4  # tune: 2, 4, 8
WEIGHT_WARPS = 4  # tune: 2, 4, 8


class PlannedLaunch:
    """A launch of one kernel with the same integers, constants and alignments each time: Triton looks at them once."""

    def __init__(self, kernel, programs, numbers, **constants):
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*programs, 1, 1)[:3], numbers, constants
        self.compiled, self.rest = None, ()

    def __call__(self, *pointers):
        if self.compiled is not None:
            self.compiled[self.grid](*pointers, *self.rest)
            return
        self.compiled = self.kernel[self.grid](*pointers, *self.numbers, **self.constants)
        names = self.kernel.arg_names[len(pointers) + len(self.numbers) :]
        self.rest = (*self.numbers, *(self.constants[name] for name in names))


# Rows times a power of two, s = hi + lo with hi in fp16, |s| < 2^14 and |lo| <= 4. A row of K numbers becomes 4 K bytes.
# Rows of Q and K: (hi, lo) in fp16, as exp makes relative errors of the weights from absolute ones of the scores.
# Weights and V: s / 64 and 64 lo fit e4m3, and their products have the scale of hi hi: (s / 64, 64 lo, hi) on the left,
# (64 lo, s / 64, hi) on the right, so that one walk along both rows meets both cross products, then the large one.


@gluon.jit
def split_part(pid, src, to16, inverse, count_ptr, list_ptr, H, sb, sh, ss, WARPS: gl.constexpr):
    # A row of 1024 for each warp, kept in registers. The mean magnitude comes to [2^9, 2^10). What is not finite or 16
    # times as large counts as zero and is listed.
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    r = gl.arange(0, WARPS, layout=gl.SliceLayout(1, layout))
    k = gl.arange(0, 1024, layout=gl.SliceLayout(0, layout))
    first = pid * WARPS
    head = first // 512
    base = src + (head // H).to(gl.int64) * sb + (head % H).to(gl.int64) * sh + (first % 512).to(gl.int64) * ss
    v = gl.load(base + (r * ss)[:, None] + k[None, :])
    size = gl.abs(v)
    mean = gl.sum(gl.where(size < float("inf"), size, 0.0) * 0.0009765625, axis=1)
    e = gl.minimum(263 - (mean.to(gl.int32, bitcast=True) >> 23), 253)
    s = v * (e << 23).to(gl.float32, bitcast=True)[:, None]
    bits = s.to(gl.int32, bitcast=True) & 0x7FFFFFFF
    if gl.max(gl.max(bits, axis=1), axis=0) >= 0x46800000:
        bad = bits >= 0x46800000
        index = ((first + r) * 1024)[:, None] + k[None, :]
        none = index * 0
        place = gl.atomic_add(count_ptr + none, none + 1, mask=bad)
        gl.store(list_ptr + place, index, mask=bad)
        s = gl.where(bad, 0.0, s)
    high = s.to(gl.float16)
    low = s - high.to(gl.float32)
    at16 = to16 + first.to(gl.int64) * 2048 + (r * 2048)[:, None] + k[None, :]
    gl.store(at16, high)
    gl.store(at16 + 1024, low.to(gl.float16))
    gl.store(inverse + first + r, ((254 - e) << 23).to(gl.float32, bitcast=True))


@gluon.jit
def split_rows(q, k, q16, k16, q_inv, k_inv, counts, q_list, k_list, programs, H, qb, qh, qs, kb, kh, ks,
               WARPS: gl.constexpr):
    # One launch for both; the first `programs` have q.
    pid = gl.program_id(0)
    if pid < programs:
        split_part(pid, q, q16, q_inv, counts, q_list, H, qb, qh, qs, WARPS)
    else:
        split_part(pid - programs, k, k16, k_inv, counts + 1, k_list, H, kb, kh, ks, WARPS)


@gluon.jit
def split_values(v, v8, v16, v_inv, v_mean, H, sb, sh, ss):
    # 32 columns of a head, less the mean of each, times a power of two for each; transposed.
    along_d: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    along_k: gl.constexpr = gl.BlockedLayout([4, 1], [32, 1], [1, 4], [0, 1])
    pid = gl.program_id(0)
    head = pid // 32
    first = pid * 32
    r = gl.arange(0, 128, layout=gl.SliceLayout(1, along_d))
    c = gl.arange(0, 32, layout=gl.SliceLayout(0, along_d))
    base = v + (head // H).to(gl.int64) * sb + (head % H).to(gl.int64) * sh + pid % 32 * 32
    at = base + (r * ss)[:, None] + c[None, :]
    x = gl.load(at)
    total = x * 0.001953125
    least = x
    most = x
    for i in gl.static_range(1, 4):
        x = gl.load(at + ss * (i * 128))
        total += x * 0.001953125
        least = gl.minimum(least, x)
        most = gl.maximum(most, x)
    mean = gl.sum(total, axis=0)
    reach = gl.maximum(gl.max(most, axis=0) - mean, mean + gl.max(-least, axis=0))
    e = gl.minimum(267 - ((reach.to(gl.int32, bitcast=True) & 0x7FFFFFFF) >> 23), 253)
    power = (e << 23).to(gl.float32, bitcast=True)
    # What is not finite makes all results of its column NaN or infinite, as it does in the reference.
    finite = (mean.to(gl.int32, bitcast=True) & 0x7FFFFFFF) < 0x7F800000
    gl.store(v_inv + first + c, gl.where(finite, (254 - e) << 23, 0x7FC00000).to(gl.float32, bitcast=True))
    gl.store(v_mean + first + c, mean)

    key = gl.arange(0, 128, layout=gl.SliceLayout(1, along_k))
    column = gl.arange(0, 32, layout=gl.SliceLayout(0, along_k))
    at8 = v8 + first.to(gl.int64) * 2048 + (column * 2048)[None, :] + key[:, None]
    at16 = v16 + first.to(gl.int64) * 1024 + (column * 1024 + 512)[None, :] + key[:, None]
    for i in gl.static_range(4):
        y = gl.load(at + ss * (i * 128))
        s = gl.convert_layout((y - mean[None, :]) * power[None, :], along_k)
        high = s.to(gl.float16)
        low = (s - high.to(gl.float32)) * 64.0
        gl.store(at8 + i * 128, low.to(gl.float8e4nv))
        gl.store(at8 + (512 + i * 128), (s * 0.015625).to(gl.float8e4nv))
        gl.store(at16 + i * 128, high)


@gluon.jit
def split_weights(s_ptr, p8, p16, p_inv, WARPS: gl.constexpr):
    # exp((s - max) / 32) of a row for each warp, times 2^13, and one over what that is too large.
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [WARPS, 1], [1, 0])
    r = gl.arange(0, WARPS, layout=gl.SliceLayout(1, layout))
    k = gl.arange(0, 512, layout=gl.SliceLayout(0, layout))
    first = gl.program_id(0) * WARPS
    s = gl.load(s_ptr + first.to(gl.int64) * 512 + (r * 512)[:, None] + k[None, :])
    top = gl.max(s, axis=1)
    p = gl.exp2((s - top[:, None]) * 0.04508422002778011)
    gl.store(p_inv + first + r, 0.0001220703125 / gl.sum(p, axis=1))
    x = p * 8192.0
    high = x.to(gl.float16)
    low = (x - high.to(gl.float32)) * 64.0
    at8 = p8 + first.to(gl.int64) * 2048 + (r * 2048)[:, None] + k[None, :]
    gl.store(at8, (x * 0.015625).to(gl.float8e4nv))
    gl.store(at8 + 512, low.to(gl.float8e4nv))
    gl.store(p16 + first.to(gl.int64) * 1024 + (r * 1024 + 512)[:, None] + k[None, :], high)


@triton.jit
def head_of(x, head, H, sb, sh):
    return x + (head // H).to(tl.int64) * sb + (head % H).to(tl.int64) * sh


@triton.jit
def add_listed(counts, q_list, k_list, q, k, q_inv, s_ptr, H, qb, qh, qs, kb, kh, ks):
    # What the listed numbers contribute to the scores, in fp32; a product of two of them once.
    each = tl.arange(0, 512)
    for number in range(tl.program_id(0), tl.load(counts), tl.num_programs(0)):
        index = tl.load(q_list + number)
        row = index // 1024
        d = index % 1024
        head = row // 512
        x = tl.load(head_of(q, head, H, qb, qh) + (row % 512) * qs + d)
        other = tl.load(head_of(k, head, H, kb, kh) + each * ks + d)
        tl.atomic_add(s_ptr + row * 512 + each, x * other)
    for number in range(tl.program_id(0), tl.load(counts + 1), tl.num_programs(0)):
        index = tl.load(k_list + number)
        row = index // 1024
        d = index % 1024
        head = row // 512
        x = tl.load(head_of(k, head, H, kb, kh) + (row % 512) * ks + d)
        other = tl.load(head_of(q, head, H, qb, qh) + each * qs + d)
        usual = tl.abs(other) < 16384.0 * tl.load(q_inv + head * 512 + each)
        tl.atomic_add(s_ptr + (head * 512 + each) * 512 + row % 512, x * other, mask=usual)


@gluon.jit
def tile_place(tile, NT: gl.constexpr):
    # The head of a tile of 128 x 256, its first row (of all heads) and its first column.
    head = tile // (4 * NT)
    place = tile % (4 * NT)
    return head, head * 512 + place % 4 * 128, place // 4 * 256


@gluon.jit
def product_fill(a_desc, b_desc, a_slots, b_slots, full, empty, row, column, step, A0: gl.constexpr, B0: gl.constexpr,
                 COUNT: gl.constexpr, STAGES: gl.constexpr):
    # 128 bytes of each row in each step, from columns A0 and B0 (of two bytes).
    for i in range(COUNT):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, (128 + 256) * 128)
        tma.async_copy_global_to_shared(b_desc, [column, B0 + i * 64], bar, b_slots.index(slot))
        tma.async_copy_global_to_shared(a_desc, [row, A0 + i * 64], bar, a_slots.index(2 * slot))
        tma.async_copy_global_to_shared(a_desc, [row + 64, A0 + i * 64], bar, a_slots.index(2 * slot + 1))
        step += 1
    return step


@gluon.jit
def product_loads(a_desc, b_desc, a_slots, b_slots, full, empty, tiles, NT: gl.constexpr, STEPS: gl.constexpr,
                  STAGES: gl.constexpr, FP8: gl.constexpr):
    # One warp fills the ring: first what the cross products need, then the large one's operands.
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, m0, n0 = tile_place(tile, NT)
        column = head * (256 * NT) + n0
        if FP8:
            step = product_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, column, step, 0, 0, 2 * STEPS, STAGES)
        else:
            step = product_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, column, step, 64 * STEPS, 0, STEPS,
                                STAGES)
            step = product_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, column, step, 0, 64 * STEPS, STEPS,
                                STAGES)
            step = product_fill(a_desc, b_desc, a_slots, b_slots, full, empty, m0, column, step, 0, 0, STEPS, STAGES)


@gluon.jit
def product_steps(acc, step, WG: gl.constexpr, a_slots, b_slots, full, empty, STEPS: gl.constexpr,
                  STAGES: gl.constexpr):
    # acc plus the products of one kind. A step's product runs while the next one's is issued.
    for i in range(STEPS):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), (step // STAGES) & 1)
        acc = warpgroup_mma(a_slots.index(2 * slot + WG), b_slots.index(slot).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=i > 0)
        step += 1
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1)
    return acc, step


@gluon.jit
def product_multiply(WG: gl.constexpr, a16, b16, a8, b8, full, empty, a_inv, b_inv, mean_ptr, out_ptr, tiles,
                     NT: gl.constexpr, STEPS: gl.constexpr, STAGES: gl.constexpr, MEAN: gl.constexpr,
                     FP8: gl.constexpr):
    # One warpgroup: 64 rows and 256 columns; both cross products while the sum is small (fp8 sums have few bits).
    layout8: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 32])
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, m0, n0 = tile_place(tile, NT)
        if FP8:
            cross = gl.zeros([64, 256], gl.float32, layout8)
            cross, step = product_steps(cross, step, WG, a8, b8, full, empty, STEPS, STAGES)
            acc = gl.convert_layout(cross, layout)  # the same places: only the instruction's depth differs
            acc, step = product_steps(acc, step, WG, a16, b16, full, empty, STEPS, STAGES)
        else:
            acc = gl.zeros([64, 256], gl.float32, layout)
            acc, step = product_steps(acc, step, WG, a16, b16, full, empty, 3 * STEPS, STAGES)
        m = m0 + WG * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
        n = n0 + gl.arange(0, 256, layout=gl.SliceLayout(0, layout))
        column = head * (256 * NT) + n
        value = acc * gl.load(a_inv + m)[:, None] * gl.load(b_inv + column)[None, :]
        if MEAN:
            value += gl.load(mean_ptr + column)[None, :]
        gl.store(out_ptr + (m * (256 * NT))[:, None] + n[None, :], value)


@gluon.jit
def product(a_desc, b_desc, a_inv, b_inv, mean_ptr, out_ptr, tiles, NT: gl.constexpr, STEPS: gl.constexpr,
            STAGES: gl.constexpr, MEAN: gl.constexpr, FP8: gl.constexpr, A8: gl.constexpr, B8: gl.constexpr):
    # out[row] = a[row] b[head of row]^T (+ mean), 512 rows and 256 NT columns for each head.
    a16 = gl.allocate_shared_memory(gl.float16, [2 * STAGES, 64, 64], a_desc.layout)
    b16 = gl.allocate_shared_memory(gl.float16, [STAGES, 256, 64], b_desc.layout)
    a8 = a16._reinterpret(gl.float8e4nv, [2 * STAGES, 64, 128], A8)
    b8 = b16._reinterpret(gl.float8e4nv, [STAGES, 256, 128], B8)
    # A ring of slots: one full, when its tiles have come; one empty, when both warpgroups have read them.
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    gl.warp_specialize([
        (product_multiply, (0, a16, b16, a8, b8, full, empty, a_inv, b_inv, mean_ptr, out_ptr, tiles, NT, STEPS, STAGES,
                            MEAN, FP8)),
        (product_multiply, (1, a16, b16, a8, b8, full, empty, a_inv, b_inv, mean_ptr, out_ptr, tiles, NT, STEPS, STAGES,
                            MEAN, FP8)),
        (product_loads, (a_desc, b_desc, a16, b16, full, empty, tiles, NT, STEPS, STAGES, FP8)),
    ], [4, 1], [240, 24])


class Attention:
    """What device, alignments and strides decide, for heads of 512 x 1024; H of them for each batch."""

    def __init__(self, device, aligned, heads, H, q_strides, k_strides, v_strides):
        self.rows = heads * 512
        programs = self.rows // ROW_WARPS
        self.split_rows = PlannedLaunch(split_rows, (2 * programs,), (programs, H, *q_strides, *k_strides),
                                        WARPS=ROW_WARPS, num_warps=ROW_WARPS)
        self.split_values = PlannedLaunch(split_values, (heads * 32,), (H, *v_strides), num_warps=4)
        self.split_weights = PlannedLaunch(split_weights, (self.rows // WEIGHT_WARPS,), (), WARPS=WEIGHT_WARPS,
                                           num_warps=WEIGHT_WARPS)
        self.add_listed = PlannedLaunch(add_listed, (264,), (H, *q_strides, *k_strides), num_warps=4)
        default = gl.NVMMASharedLayout.get_default_for
        self.a_tile, self.b_tile = default([64, 64], gl.float16), default([256, 64], gl.float16)
        parts = dict(A8=default([64, 128], gl.float8e4nv), B8=default([256, 128], gl.float8e4nv), STAGES=STAGES,
                     num_warps=4)
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        self.scores = PlannedLaunch(product, (min(processors, heads * 8),), (heads * 8,), NT=2, STEPS=16, MEAN=False,
                                    FP8=False, **parts)
        self.values = PlannedLaunch(product, (min(processors, heads * 16),), (heads * 16,), NT=4, STEPS=8, MEAN=True,
                                    FP8=True, **parts)

    def descriptor(self, x, block, tile):
        return TensorDescriptor(x, tuple(x.shape), (x.shape[1], 1), block, tile)

    def __call__(self, q, k, v):
        rows = self.rows

        def halves(n, width):
            x = torch.empty((n, 2 * width), device=q.device, dtype=torch.float16)
            return x, x.view(torch.float8_e4m3fn)

        def floats(*shape):
            return torch.empty(shape, device=q.device, dtype=torch.float32)

        q16, k16 = halves(rows, 1024)[0], halves(rows, 1024)[0]
        (v16, v8), (p16, p8) = halves(2 * rows, 512), halves(rows, 512)
        q_inv, k_inv, p_inv, v_inv, v_mean = (floats(n) for n in (rows, rows, rows, 2 * rows, 2 * rows))
        counts = torch.zeros(2, device=q.device, dtype=torch.int32)
        q_list, k_list = (torch.empty(rows * 1024, device=q.device, dtype=torch.int32) for _ in range(2))
        s, out = floats(rows, 512), floats(rows, 1024)
        self.split_rows(q, k, q16, k16, q_inv, k_inv, counts, q_list, k_list)
        self.scores(self.descriptor(q16, [64, 64], self.a_tile), self.descriptor(k16, [256, 64], self.b_tile), q_inv,
                    k_inv, k_inv, s)
        self.add_listed(counts, q_list, k_list, q, k, q_inv, s)
        self.split_weights(s, p8, p16, p_inv)
        self.split_values(v, v8, v16, v_inv, v_mean)
        self.values(self.descriptor(p16, [64, 64], self.a_tile), self.descriptor(v16, [256, 64], self.b_tile), p_inv,
                    v_inv, v_mean, out)
        return out


attention_of = functools.lru_cache(maxsize=None)(Attention)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    @torch.no_grad()
    def forward(self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
        if Q.dim() != 4 or Q.shape[2:] != (512, 1024) or K.shape != Q.shape or V.shape != Q.shape:
            raise RuntimeError("shape not supported")
        if not (Q.dtype == K.dtype == V.dtype == torch.float32) or not Q.is_cuda:
            raise RuntimeError("dtype or device not supported")
        heads = Q.shape[0] * Q.shape[1]
        if heads == 0 or heads > 1024:
            raise RuntimeError("shape not supported")
        # Any order of batches, heads and rows, but numbers of a row side by side.
        Q, K, V = (x if x.stride(3) == 1 and x.stride(2) < 2**20 else x.contiguous() for x in (Q, K, V))
        with torch.cuda.device(Q.device):
            attention = attention_of(Q.device, tuple(x.data_ptr() % 16 == 0 for x in (Q, K, V)), heads, Q.shape[1],
                                     Q.stride()[:3], K.stride()[:3], V.stride()[:3])
            return attention(Q, K, V).view(Q.shape)
