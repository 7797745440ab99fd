# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:1/89 (text 24eea19436dc41aa)
# kernel      7cf3f8ee451ca447, triton
# run         89-20261127-181429-b0e4, seed 0, generation 2
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 1.5e-05 against the fp64 truth (the reference's own: 3.0e-04)
# speedup     2.086 times PyTorch eager, 95 % interval 2.084 to 2.088
# times       2.146 ms; eager 4.475 ms in the same rounds
# KernelBench 1.88× over eager, 2.48 ms, eager 4.67 ms, by its way of timing (cuda_event), which includes slow launches
# launches    1 a call, for which the host needs 231 µs, eager 32.9 µs
# measured    2026-11-27 22:07 UTC
# again with  kbevolve evaluate level_1_problem_89_sample_0_kernel.py --problem kernelbench:1/89 --device cuda
#
# lineage, newest first:
#   7cf3f8ee451ca447  g2    mutate     2.084x  Rows handed out dynamically by a ticket counter (9 edits)
#   fbc8999d04ef53e0  g1    mutate     2.050x  TMA ring scanned in place, 32 contiguous elements a thread, persistent …
#   41729a24d6251cf5  g0    seed       2.038x  given: level_1_problem_89_sample_0_kernel.py
# ---- end of provenance ----

"""Row-wise cumulative sum: a persistent stream of chunks that TMA brings and takes, scanned in place.

A program draws row after row from a counter, so that none waits for a slower one.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# warps of a program; a chunk has 1024 elements for each
WARPS = 4  # tune: 1, 2, 4, 8
# chunks in the ring
SLOTS = 4  # tune: 3, 4, 6, 8
# resident programs for each multiprocessor
BLOCKS = 3  # tune: 1, 2, 3, 4, 6, 8, 12
# a slot is filled again when the store of this many chunks ago has read it
LAG = 1  # tune: 1, 2
# tune if: (4 * WARPS * SLOTS + 2) * BLOCKS <= 226
# tune if: WARPS * SLOTS <= 32


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def _fetch(x_desc, ring, full, line, slot, LINES: gl.constexpr):
    # a chunk of LINES lines of 32 elements
    bar = full.index(slot)
    mbarrier.expect(bar, LINES * 128)
    tma.async_copy_global_to_shared(x_desc, [line, 0], bar, ring.index(slot))


@gluon.jit
def cumsum_rows_kernel(x_desc, y_desc, counter, rows, COLS: gl.constexpr, WARPS: gl.constexpr, SLOTS: gl.constexpr,
                       LAG: gl.constexpr):
    LINES: gl.constexpr = 32 * WARPS
    BLOCK: gl.constexpr = 1024 * WARPS
    CHUNKS: gl.constexpr = COLS // BLOCK
    # A line of 32 elements for each thread; the 128-byte swizzle keeps its accesses free of bank conflicts.
    tile: gl.constexpr = gl.BlockedLayout([1, 32], [32, 1], [WARPS, 1], [1, 0])
    flat: gl.constexpr = gl.BlockedLayout([32], [32], [WARPS], [0])

    ring = gl.allocate_shared_memory(gl.float32, [SLOTS, LINES, 32], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(full.index(i), count=1)
    fence_async_shared()
    tl.debug_barrier()

    pid = gl.program_id(0)
    programs = gl.num_programs(0)
    # There are no more programs than rows, and no fewer chunks in a row than slots.
    for i in gl.static_range(SLOTS):
        _fetch(x_desc, ring, full, (pid * CHUNKS + i) * LINES, i, LINES)

    step = 0
    row = pid
    while row < rows:
        # The row after this one. Each program draws until a ticket fails, which makes as many tickets as rows.
        ticket = gl.atomic_add(counter, 1, sem="relaxed")
        if ticket == rows - 1:
            gl.store(counter, ticket * 0)
        following = programs + ticket
        first_line = row * (CHUNKS * LINES)
        carry = 0.0
        for c in range(0, CHUNKS):
            slot = step % SLOTS
            buf = ring.index(slot)
            mbarrier.wait(full.index(slot), (step // SLOTS) & 1)
            x = gl.convert_layout(buf.load(tile).reshape([BLOCK]), flat)
            y = gl.associative_scan(x, 0, _add) + carry
            carry = carry + gl.sum(x, axis=0)
            buf.store(gl.convert_layout(y.reshape([LINES, 32]), tile))
            fence_async_shared()
            # The store of LAG chunks ago has read its slot.
            tma.store_wait(pendings=LAG - 1)
            tl.debug_barrier()
            tma.async_copy_shared_to_global(y_desc, [first_line + c * LINES, 0], buf)
            # The chunk that is SLOTS - LAG ahead, of this row or the following one.
            ahead = c + (SLOTS - LAG)
            beyond = ahead // CHUNKS
            source = row + beyond * (following - row)
            if (step >= LAG) & (source < rows):
                line = (source * CHUNKS + (ahead - beyond * CHUNKS)) * LINES
                _fetch(x_desc, ring, full, line, (step + (SLOTS - LAG)) % SLOTS, LINES)
            step += 1
        row = following
    tma.store_wait(pendings=0)


# for each device and stream, the tickets drawn: zero between calls
_counters = {}


def _counter(device):
    key = device, torch.cuda.current_stream(device).cuda_stream
    counter = _counters.get(key)
    if counter is None:
        counter = _counters[key] = torch.zeros(1, dtype=torch.int32, device=device)
    return counter


class ModelNew(nn.Module):
    """
    A simple model that performs a cumulative sum (prefix sum) operation along a specified dimension.

    Parameters:
        dim (int): The dimension along which to perform the cumulative sum.
    """

    def __init__(self, dim):
        """
        Initialize the Scan model.

        Args:
            dim (int): The dimension along which to perform the cumulative sum.
        """
        super(ModelNew, self).__init__()
        self.dim = dim

    @torch.no_grad()
    def forward(self, x):
        if x.dim() != 2 or self.dim not in (1, -1):
            raise ValueError("only the cumulative sum along the rows of a matrix is supported")
        if x.dtype != torch.float32 or not x.is_cuda or not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError("x must be a contiguous, aligned float32 tensor on the GPU")
        rows, cols = x.shape
        if rows == 0 or cols == 0 or cols % (1024 * WARPS) != 0 or rows * (cols // 32) >= 2**31:
            raise ValueError("columns must be a multiple of a chunk")
        if cols < 1024 * WARPS * SLOTS:
            raise ValueError("rows must fill the ring")
        y = torch.empty_like(x)
        lines = 32 * WARPS
        layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
        with torch.cuda.device(x.device):
            x_desc = TensorDescriptor.from_tensor(x.view(-1, 32), [lines, 32], layout)
            y_desc = TensorDescriptor.from_tensor(y.view(-1, 32), [lines, 32], layout)
            processors = torch.cuda.get_device_properties(x.device).multi_processor_count
            cumsum_rows_kernel[(min(rows, processors * BLOCKS),)](
                x_desc,
                y_desc,
                _counter(x.device),
                rows,
                COLS=cols,
                WARPS=WARPS,
                SLOTS=SLOTS,
                LAG=LAG,
                num_warps=WARPS,
            )
        return y
