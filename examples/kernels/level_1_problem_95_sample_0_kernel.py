# Exported by kbevolve 0.1.0 on 2026-11-28; the kernel follows this block.
#
# problem     kernelbench:1/95 (text 4cdfaaf1c2118369)
# kernel      f9ec90aefbaeb133, triton
# run         95-20261127-181301-6b86, seed 0, generation 0
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 1.8e-04 against the fp64 truth (the reference's own: 1.4e-03)
# speedup     3.272 times PyTorch eager, 95 % interval 3.264 to 3.281
# times       0.1244 ms; eager 0.408 ms in the same rounds
# KernelBench 2.45× over eager, 167 µs, eager 410 µs, by its way of timing (cuda_event), which includes slow launches
# launches    2 a call, for which the host needs 133 µs, eager 23.9 µs
# measured    2026-11-28 01:25 UTC
# again with  kbevolve evaluate level_1_problem_95_sample_0_kernel.py --problem kernelbench:1/95 --device cuda
#
# lineage, newest first:
#   f9ec90aefbaeb133  g0    seed       3.326x  given: level_1_problem_95_sample_0_kernel.py
# ---- end of provenance ----

"""Cross entropy: one streaming pass with rows in registers, and a tail kernel under programmatic dependent launch."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

M_ROWS = 32768
N_COLS = 4096

WARPS = 4  # tune: 1, 2, 4, 8
CHUNK = 4096  # tune: 512, 1024, 2048, 4096
# tune if: CHUNK <= 2048 * WARPS
# tune if: CHUNK >= 256 * WARPS
ROWS = 4  # tune: 1, 2, 4, 8
PREFETCH = 1  # tune: 0, 1
EVICT_FIRST = 1  # tune: 0, 1
MAX_REGS = 0  # tune: 0, 64, 96
TAIL_WARPS = 16  # tune: 8, 16, 32

PARTS = M_ROWS // ROWS
TAIL_BLOCK = min(PARTS, 256 * TAIL_WARPS)
EVICT = "evict_first" if EVICT_FIRST else ""
EXTRA = {"maxnreg": MAX_REGS} if MAX_REGS else {}


@triton.jit
def _ex2(x):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _rows_kernel(
    pred_ptr,
    tgt_ptr,
    part_ptr,
    cnt_ptr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PREFETCH: tl.constexpr,
    EVICT: tl.constexpr,
):
    # The tail kernel may take its place as soon as every block has started; it
    # waits for the end of this grid itself.
    tl.extra.cuda.gdc_launch_dependents()

    pid = tl.program_id(0)
    row0 = pid * ROWS
    base = pred_ptr + row0 * N
    cols = tl.arange(0, CHUNK)

    t_next = tl.load(tgt_ptr + row0)
    if PREFETCH:
        x_next = tl.load(base + cols, eviction_policy=EVICT)

    # fp64: sum of (m - x_t), and product of the rows' exponential sums. Each sum
    # is in [1, N], so the product of up to 8 rows is far from overflow.
    lin = 0.0
    prod = 1.0
    count = 0
    for r in tl.static_range(ROWS):
        t = t_next
        if r + 1 < ROWS:
            t_next = tl.load(tgt_ptr + row0 + (r + 1))
        m = float("-inf")
        s = 0.0
        for c in tl.static_range(CHUNKS):
            if PREFETCH:
                x = x_next
                if r * CHUNKS + c + 1 < ROWS * CHUNKS:
                    x_next = tl.load(base + (r * CHUNKS + c + 1) * CHUNK + cols, eviction_policy=EVICT)
            else:
                x = tl.load(base + (r * CHUNKS + c) * CHUNK + cols, eviction_policy=EVICT)
            if c == 0:
                # The target's logit: issued early, used at the end of the row.
                valid = t != -100
                inside = (t >= 0) & (t < N)
                xt = tl.load(base + r * N + t, mask=inside, other=float("nan"))
            m_new = tl.maximum(m, tl.max(x, axis=0))
            # A row that is -inf so far: exp2(-inf - 0) = 0 instead of NaN.
            ref = tl.where(m_new == float("-inf"), 0.0, m_new)
            p = _ex2((x - ref) * 1.4426950408889634)
            ps = tl.sum(p, axis=0)
            if c == 0:
                s = ps
            else:
                s = s * tl.exp2((m - ref) * 1.4426950408889634) + ps
            m = m_new
        lin += tl.where(valid, m.to(tl.float64) - xt.to(tl.float64), 0.0)
        prod *= tl.where(valid, s, 1.0).to(tl.float64)
        count += valid.to(tl.int32)

    # One fp64 logarithm for all rows of the block.
    total = lin + tl.log(prod)
    tl.store(part_ptr + pid, total)
    tl.store(cnt_ptr + pid, count.to(tl.int8))


@triton.jit
def _tail_kernel(part_ptr, cnt_ptr, out_ptr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    i = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + i, cache_modifier=".cg")
    cnt = tl.load(cnt_ptr + i, cache_modifier=".cg").to(tl.int32)
    for k in tl.static_range(1, PARTS // BLOCK):
        part += tl.load(part_ptr + k * BLOCK + i, cache_modifier=".cg")
        cnt += tl.load(cnt_ptr + k * BLOCK + i, cache_modifier=".cg").to(tl.int32)
    # fp64 sum and IEEE fp64 division, rounded once to fp32.
    total = tl.sum(part, axis=0)
    count = tl.sum(cnt, axis=0)
    mean = total / count.to(tl.float64)
    tl.store(out_ptr, mean.to(tl.float32))


class ModelNew(nn.Module):
    """
    A model that computes Cross Entropy Loss for multi-class classification tasks.

    Parameters:
        None
    """
    def __init__(self):
        super(ModelNew, self).__init__()

    @torch.no_grad()
    def forward(self, predictions, targets):
        if (
            predictions.shape != (M_ROWS, N_COLS)
            or targets.shape != (M_ROWS,)
            or predictions.dtype != torch.float32
            or targets.dtype != torch.int64
            or not predictions.is_contiguous()
            or not targets.is_contiguous()
            or not predictions.is_cuda
            or targets.device != predictions.device
        ):
            raise ValueError("expects contiguous (32768, 4096) fp32 predictions and (32768,) int64 targets on the GPU")
        device = predictions.device
        part = torch.empty((PARTS,), device=device, dtype=torch.float64)
        cnt = torch.empty((PARTS,), device=device, dtype=torch.int8)
        out = torch.empty((), device=device, dtype=torch.float32)
        _rows_kernel[(PARTS,)](
            predictions,
            targets,
            part,
            cnt,
            N=N_COLS,
            ROWS=ROWS,
            CHUNK=CHUNK,
            CHUNKS=N_COLS // CHUNK,
            PREFETCH=PREFETCH,
            EVICT=EVICT,
            num_warps=WARPS,
            num_stages=1,
            **EXTRA,
        )
        _tail_kernel[(1,)](
            part,
            cnt,
            out,
            PARTS=PARTS,
            BLOCK=TAIL_BLOCK,
            num_warps=TAIL_WARPS,
            num_stages=1,
            launch_pdl=True,
        )
        return out
