# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:3/48 (text 9d002dee6313689d)
# kernel      64fd35dde2a6beda, triton
# run         48-20261127-181342-b965, seed 0, generation 2
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 1.1e-05 against the fp64 truth (the reference's own: 5.5e-06)
# speedup     26.079 times PyTorch eager, 95 % interval 26.043 to 26.116
# times       0.3289 ms; eager 8.581 ms in the same rounds
# KernelBench 18.3× over eager, 480 µs, eager 8.76 ms, by its way of timing (cuda_event), which includes slow launches
# launches    1 a call, for which the host needs 137 µs, eager 2.70 ms
# measured    2026-11-27 22:10 UTC
# again with  kbevolve evaluate level_3_problem_48_sample_0_kernel.py --problem kernelbench:3/48 --device cuda
#
# lineage, newest first:
#   64fd35dde2a6beda  g2    mutate    25.996x  Items handed out in order by a counter, scores from fp16 pairs (16 edit…
#   23485024ff955a7a  g0    seed      24.737x  given: level_3_problem_48_sample_0_kernel.py
# ---- end of provenance ----

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.experimental.gluon.language.nvidia.hopper import (
    tma,
    mbarrier,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

STAGES = 1  # tune: 1, 2
BLOCKS = 3  # tune: 2, 3, 4
MAXREG = 168  # tune: 128, 168, 255
TMA_STORE = 1  # tune: 0, 1
# tune if: (24 * STAGES + 24 + 16 * TMA_STORE) * BLOCKS <= 224
# tune if: MAXREG * BLOCKS <= 512


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def _split2(x):
    hi = x.to(gl.bfloat16)
    lo = (x - hi.to(gl.float32)).to(gl.bfloat16)
    return hi, lo


@gluon.jit
def _split_half(x):
    # two fp16 parts: 22 bits of the parameters B and C, which are of the order of one
    hi = x.to(gl.float16)
    lo = (x - hi.to(gl.float32)).to(gl.float16)
    return hi, lo


@gluon.jit
def _fetch(x_desc, b_desc, c_desc, x_raw, b_raw, c_raw, bar, row, h):
    # 64x64, 64x16 and 64x16 fp32: 16384 + 4096 + 4096 bytes
    mbarrier.expect(bar, 24576)
    tma.async_copy_global_to_shared(x_desc, [row, h * 64], bar, x_raw)
    tma.async_copy_global_to_shared(b_desc, [row, h * 16], bar, b_raw)
    tma.async_copy_global_to_shared(c_desc, [row, h * 16], bar, c_raw)


@gluon.jit
def _stage_operands(x_raw, b_raw, xh_s, xl_s, b0_s, b1_s):
    x_layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    b_layout: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    bv = b_raw.load(b_layout)
    p0, p1 = _split_half(bv)
    b0_s.store(p0)
    b1_s.store(p1)
    xv = x_raw.load(x_layout)
    hi, lo = _split2(xv)
    xh_s.store(hi)
    xl_s.store(lo)


@gluon.jit
def _scores(c0, c1, b0_s, b1_s, mma: gl.constexpr):
    # C B^T with 22 bits of both operands, the small products first
    bt0 = b0_s.permute((1, 0))
    bt1 = b1_s.permute((1, 0))
    zero = gl.zeros([64, 64], gl.float32, mma)
    s0 = warpgroup_mma(c1, bt0, zero, is_async=True)
    s1 = warpgroup_mma(c0, bt1, s0, is_async=True)
    s2 = warpgroup_mma(c0, bt0, s1, is_async=True)
    s = warpgroup_mma_wait(num_outstanding=0, deps=(s2, ))
    return s


@gluon.jit
def _accumulate(m, xh_s, xl_s, acc, dot_a: gl.constexpr):
    # acc + M X with two bf16 parts of both operands
    hi, lo = _split2(m)
    a_hi = gl.convert_layout(hi, dot_a)
    a_lo = gl.convert_layout(lo, dot_a)
    y0 = warpgroup_mma(a_lo, xh_s, acc, is_async=True)
    y1 = warpgroup_mma(a_hi, xl_s, y0, is_async=True)
    y2 = warpgroup_mma(a_hi, xh_s, y1, is_async=True)
    y = warpgroup_mma_wait(num_outstanding=0, deps=(y2, ))
    return y


@gluon.jit
def _decay(s, csr, csc, base, mma: gl.constexpr):
    # base differs from item to item: keeps the 64x64 predicates out of registers across the loop
    rows = base + gl.arange(0, 64, layout=gl.SliceLayout(1, mma))
    cols = base + gl.arange(0, 64, layout=gl.SliceLayout(0, mma))
    causal = rows[:, None] >= cols[None, :]
    d = csr[:, None] - csc[None, :]
    return gl.where(causal, s * gl.exp2(d), 0.0)


@gluon.jit
def _emit(y, y_desc, y_s, y_ptr, row, h, mma: gl.constexpr, USE_TMA: gl.constexpr):
    if USE_TMA == 1:
        tma.store_wait(pendings=0)
        tl.debug_barrier()
        y_s.store(y)
        fence_async_shared()
        tl.debug_barrier()
        tma.async_copy_shared_to_global(y_desc, [row, h * 64], y_s)
    else:
        rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, mma))
        cols = h * 64 + gl.arange(0, 64, layout=gl.SliceLayout(0, mma))
        offs = rows[:, None] * 512 + cols[None, :]
        gl.store(y_ptr + offs, y)


@gluon.jit
def _ssd_kernel(x_desc, b_desc, c_desc, y_desc, a_ptr, y_ptr, next_ptr, n_items,
                NSTAGES: gl.constexpr, USE_TMA: gl.constexpr):
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    dot_a: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=mma, k_width=2)
    row_l: gl.constexpr = gl.SliceLayout(1, mma)
    col_l: gl.constexpr = gl.SliceLayout(0, mma)
    scan_l: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    # one number for each thread of the block
    lane_l: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    xs_l: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    bs_l: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=32, element_bitwidth=16, rank=2)

    x_raw = gl.allocate_shared_memory(gl.float32, [NSTAGES, 64, 64], x_desc.layout)
    b_raw = gl.allocate_shared_memory(gl.float32, [NSTAGES, 64, 16], b_desc.layout)
    c_raw = gl.allocate_shared_memory(gl.float32, [NSTAGES, 64, 16], c_desc.layout)
    xh_s = gl.allocate_shared_memory(gl.bfloat16, [64, 64], xs_l)
    xl_s = gl.allocate_shared_memory(gl.bfloat16, [64, 64], xs_l)
    b0_s = gl.allocate_shared_memory(gl.float16, [64, 16], bs_l)
    b1_s = gl.allocate_shared_memory(gl.float16, [64, 16], bs_l)
    if USE_TMA == 1:
        y_s = gl.allocate_shared_memory(gl.float32, [64, 64], y_desc.layout)
    else:
        y_s = x_raw.index(0)
    bars = gl.allocate_shared_memory(gl.int64, [NSTAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NSTAGES):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    tl.debug_barrier()

    pid = gl.program_id(0)
    step = gl.num_programs(0)
    offs = gl.arange(0, 64, layout=scan_l)
    lane = gl.arange(0, 128, layout=lane_l)

    first_row = (pid // 8) * 128
    first_h = pid % 8
    _fetch(x_desc, b_desc, c_desc, x_raw.index(0), b_raw.index(0), c_raw.index(0),
           bars.index(0), first_row, first_h)
    if NSTAGES == 2:
        _fetch(x_desc, b_desc, c_desc, x_raw.index(NSTAGES - 1), b_raw.index(NSTAGES - 1),
               c_raw.index(NSTAGES - 1), bars.index(NSTAGES - 1), first_row + 64, first_h)
    a_next = gl.load(a_ptr + ((first_row + offs) * 8 + first_h))

    item = pid
    it = 0
    while item < n_items:
        row = (item // 8) * 128
        h = item % 8
        # One thread draws the next item; nobody waits for it before the item is needed.
        drawn = gl.atomic_add(next_ptr + lane * 0, lane * 0 + 1, mask=lane == 0, sem="relaxed")
        # one stage: it completes twice an item; two stages: each once an item
        ph0 = (it & 1) * (NSTAGES - 1)
        ph1 = ph0 + (2 - NSTAGES)

        # ---- first chunk
        a0 = a_next
        a1 = gl.load(a_ptr + ((row + 64 + offs) * 8 + h))
        cs0 = gl.associative_scan(a0 * 1.4426950408889634, 0, _add)
        tot0 = gl.sum(gl.where(offs == 63, cs0, 0.0), axis=0)
        csr0 = gl.convert_layout(cs0, row_l)
        csc0 = gl.convert_layout(cs0, col_l)

        mbarrier.wait(bars.index(0), ph0)
        ca0, ca1 = _split_half(c_raw.index(0).load(dot_a))
        _stage_operands(x_raw.index(0), b_raw.index(0), xh_s, xl_s, b0_s, b1_s)
        fence_async_shared()
        tl.debug_barrier()
        if NSTAGES == 1:
            _fetch(x_desc, b_desc, c_desc, x_raw.index(0), b_raw.index(0), c_raw.index(0),
                   bars.index(0), row + 64, h)
        else:
            first_draw = gl.sum(gl.where(lane == 0, drawn, 0), axis=0) + step
            if first_draw < n_items:
                _fetch(x_desc, b_desc, c_desc, x_raw.index(0), b_raw.index(0), c_raw.index(0),
                       bars.index(0), (first_draw // 8) * 128, first_draw % 8)

        s00 = _scores(ca0, ca1, b0_s, b1_s, mma)
        m00 = _decay(s00, csr0, csc0, row, mma)
        y_a = _accumulate(m00, xh_s, xl_s, gl.zeros([64, 64], gl.float32, mma), dot_a)
        _emit(y_a, y_desc, y_s, y_ptr, row, h, mma, USE_TMA)

        # ---- the next item: as many are drawn as there are, and the last draw leaves zero for the next call
        draw = gl.sum(gl.where(lane == 0, drawn, 0), axis=0)
        if draw == n_items - 1:
            gl.store(next_ptr, 0)
        nxt = draw + step
        pre = gl.minimum(nxt, n_items - 1)
        nrow = (pre // 8) * 128
        nh = pre % 8

        # ---- second chunk: what the first one hands on
        a_next = gl.load(a_ptr + ((nrow + offs) * 8 + nh))
        cs1 = gl.associative_scan(a1 * 1.4426950408889634, 0, _add)
        csr1 = gl.convert_layout(cs1, row_l)
        csc1 = gl.convert_layout(cs1, col_l)
        er = gl.exp2(csr1)
        ec = gl.exp2(tot0 - csc0)

        mbarrier.wait(bars.index(NSTAGES - 1), ph1)
        cb0, cb1 = _split_half(c_raw.index(NSTAGES - 1).load(dot_a))
        s10 = _scores(cb0, cb1, b0_s, b1_s, mma)
        m10 = s10 * er[:, None] * ec[None, :]
        y_b = _accumulate(m10, xh_s, xl_s, gl.zeros([64, 64], gl.float32, mma), dot_a)

        # ---- second chunk: its own part
        tl.debug_barrier()
        _stage_operands(x_raw.index(NSTAGES - 1), b_raw.index(NSTAGES - 1),
                        xh_s, xl_s, b0_s, b1_s)
        fence_async_shared()
        tl.debug_barrier()
        if nxt < n_items:
            if NSTAGES == 1:
                _fetch(x_desc, b_desc, c_desc, x_raw.index(0), b_raw.index(0), c_raw.index(0),
                       bars.index(0), nrow, nh)
            else:
                _fetch(x_desc, b_desc, c_desc, x_raw.index(NSTAGES - 1), b_raw.index(NSTAGES - 1),
                       c_raw.index(NSTAGES - 1), bars.index(NSTAGES - 1), nrow + 64, nh)

        s11 = _scores(cb0, cb1, b0_s, b1_s, mma)
        m11 = _decay(s11, csr1, csc1, row + 64, mma)
        y_c = _accumulate(m11, xh_s, xl_s, y_b, dot_a)
        _emit(y_c, y_desc, y_s, y_ptr, row + 64, h, mma, USE_TMA)

        item = nxt
        it = it + 1

    if USE_TMA == 1:
        tma.store_wait(pendings=0)


_COUNTERS = {}


def _counter(device):
    # Drawn from by the blocks of a call; each call leaves it at zero.
    if device not in _COUNTERS:
        _COUNTERS[device] = torch.zeros(1, device=device, dtype=torch.int32)
    return _COUNTERS[device]


class ModelNew(nn.Module):
    def __init__(self, batch_size, seq_length, n_heads, d_head, d_state, block_len=64):
        """
        Mamba Structured State Space model implementation for benchmarking.

        :param batch_size: Size of the batch
        :param seq_length: Length of the input sequence
        :param n_heads: Number of attention heads
        :param d_head: Dimension of each head
        :param d_state: Dimension of the state space
        :param block_len: Length of each block for chunked computation
        """
        super(ModelNew, self).__init__()

        assert seq_length % block_len == 0, "Sequence length must be divisible by block length"

        self.batch_size = batch_size
        self.seq_length = seq_length
        self.n_heads = n_heads
        self.d_head = d_head
        self.d_state = d_state
        self.block_len = block_len

        # Initialize parameters
        self.A = nn.Parameter(torch.randn(batch_size, seq_length, n_heads))
        self.B = nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))
        self.C = nn.Parameter(torch.randn(batch_size, seq_length, n_heads, d_state))

    @torch.no_grad()
    def forward(self, X, initial_states=None):
        if initial_states is not None:
            raise NotImplementedError("initial_states is not supported")
        if (self.seq_length, self.n_heads, self.d_head, self.d_state, self.block_len) != (128, 8, 64, 16, 64):
            raise NotImplementedError("only seq_length 128, 8 heads of 64, state 16, blocks of 64")
        if tuple(X.shape) != (self.batch_size, 128, 8, 64) or X.dtype != torch.float32:
            raise NotImplementedError("unexpected shape or dtype of X")
        if not X.is_contiguous():
            X = X.contiguous()
        A = self.A.contiguous()
        B = self.B.contiguous()
        C = self.C.contiguous()
        Y = torch.empty_like(X)

        n_rows = self.batch_size * 128
        wide = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
        slim = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=32, rank=2)
        x_desc = TensorDescriptor.from_tensor(X.view(n_rows, 512), [64, 64], wide)
        b_desc = TensorDescriptor.from_tensor(B.view(n_rows, 128), [64, 16], slim)
        c_desc = TensorDescriptor.from_tensor(C.view(n_rows, 128), [64, 16], slim)
        y_desc = TensorDescriptor.from_tensor(Y.view(n_rows, 512), [64, 64], wide)

        n_items = self.batch_size * 8
        sms = torch.cuda.get_device_properties(X.device).multi_processor_count
        grid = min(n_items, sms * BLOCKS)
        _ssd_kernel[(grid, )](x_desc, b_desc, c_desc, y_desc, A, Y, _counter(X.device), n_items,
                              STAGES, TMA_STORE, num_warps=4, maxnreg=MAXREG)
        return Y
