"""L2/gemm_bias_relu in Triton: fp32 tiles, or products of tensor cores with fp32 accuracy.

The declared values are a plain tiled kernel, and a second one for bias and ReLU. What the tunables do:

- ``FUSE``: add the bias and clip on the product's last write, instead of reading it all again.
- ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``: the tile of the result that a program computes, and the depth of one step.
- ``GROUP_M``: rows of tiles that are walked together, so that what they read of the weight is still in L2.
- ``NUM_WARPS``, ``NUM_STAGES``: warps that share a tile, and steps that are fetched ahead (fewer where shared memory
  would not hold them).
- ``SPLIT``: 0 multiplies in fp32. 1 makes three TF32 products of the high and low parts of each number. 2 does so with
  x = high + low / 2048 in fp16, written out beforehand, which keeps about 22 bits of x (H. Ootomo and R. Yokota,
  "Recovering single precision accuracy from Tensor Cores", arXiv:2203.03341); it falls back to 1 where the largest entry
  does not suit fp16.

Each step's product is summed apart and then added in fp32: one running fp32 sum over thousands of positive products
loses digits, and the tensor cores' own sums round toward zero. Below, x is A (M, K), the weight B (N, K),
the result C (M, N).
"""

import torch
import triton
import triton.language as tl
from torch import nn

FUSE = 0  # tune: 0, 1
BLOCK_M = 64  # tune: 32, 64, 128
BLOCK_N = 64  # tune: 32, 64, 128
BLOCK_K = 16  # tune: 16, 32, 64
GROUP_M = 1  # tune: 1, 4, 8, 16
NUM_WARPS = 4  # tune: 4, 8
NUM_STAGES = 2  # tune: 2, 3, 4
SPLIT = 0  # tune: 0, 1, 2


@triton.jit
def suits_fp16(largest):
    """Whether fp16 halves hold A and B, given the bits of their largest magnitudes: no overflow, not too small."""
    a = tl.load(largest).to(tl.float32, bitcast=True)
    b = tl.load(largest + 1).to(tl.float32, bitcast=True)
    return (a > 1e-3) & (a < 6e4) & (b > 1e-3) & (b < 6e4)


@triton.jit
def split_kernel(x, high, low, largest, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    v = tl.load(x + offsets, mask=inside, other=0.0)
    h = v.to(tl.float16)
    tl.store(high + offsets, h, mask=inside)
    tl.store(low + offsets, ((v - h.to(tl.float32)) * 2048.0).to(tl.float16), mask=inside)
    tl.atomic_max(largest, tl.max(tl.abs(v), 0).to(tl.int32, bitcast=True))


@triton.jit
def gemm_kernel(
    A,
    A_low,
    B,
    B_low,
    bias,
    C,
    largest,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    HALVES: tl.constexpr,
    PRECISION: tl.constexpr,
    FALLBACK: tl.constexpr,
    EVEN: tl.constexpr,
    FUSE: tl.constexpr,
):
    across = tl.cdiv(N, BLOCK_N)
    group = tl.program_id(0) // (GROUP_M * across)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    within = tl.program_id(0) % (GROUP_M * across)
    rows = (group * GROUP_M + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    at_a = rows.to(tl.int64)[:, None] * K + depth[None, :]
    at_b = columns.to(tl.int64)[:, None] * K + depth[None, :]
    inside_c = (rows < M)[:, None] & (columns < N)[None, :]
    steps = tl.cdiv(K, BLOCK_K)
    if FALLBACK:  # nothing to do where the halves were good
        needed = suits_fp16(largest) == 0
        steps = tl.where(needed, steps, 0)
        inside_c = inside_c & needed
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, steps):
        left = K - step * BLOCK_K
        if EVEN:
            a = tl.load(A + at_a)
            b = tl.load(B + at_b)
        else:
            inside_a = (rows < M)[:, None] & (depth < left)[None, :]
            inside_b = (columns < N)[:, None] & (depth < left)[None, :]
            a = tl.load(A + at_a, mask=inside_a, other=0.0)
            b = tl.load(B + at_b, mask=inside_b, other=0.0)
        if HALVES:
            if EVEN:
                a_low = tl.load(A_low + at_a)
                b_low = tl.load(B_low + at_b)
            else:
                a_low = tl.load(A_low + at_a, mask=inside_a, other=0.0)
                b_low = tl.load(B_low + at_b, mask=inside_b, other=0.0)
            part = tl.dot(a_low, b.T)
            part = tl.dot(a, b_low.T, part) * (1.0 / 2048.0)
            total += tl.dot(a, b.T, part)
        else:
            # With a limit on imprecise sums the compiler leaves this addition out of the product.
            total += tl.dot(a, b.T, input_precision=PRECISION, max_num_imprecise_acc=BLOCK_K)
        at_a += BLOCK_K
        at_b += BLOCK_K
    if FUSE:
        total = tl.maximum(total + tl.load(bias + columns, mask=columns < N)[None, :], 0.0, tl.PropagateNan.ALL)
    tl.store(C + rows.to(tl.int64)[:, None] * N + columns[None, :], total, mask=inside_c)


@triton.jit
def activate_kernel(C, bias, count, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(C + offsets, mask=offsets < count) + tl.load(bias + offsets % N, mask=offsets < count)
    tl.store(C + offsets, tl.maximum(v, 0.0, tl.PropagateNan.ALL), mask=offsets < count)


def stages(device: torch.device) -> int:
    """NUM_STAGES, or as many steps of A and B as the device's shared memory holds beside one being multiplied."""
    limit = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 99 * 1024)
    return max(1, min(NUM_STAGES, limit // (4 * (BLOCK_M + BLOCK_N) * BLOCK_K) - (SPLIT == 1)))


def split(x: torch.Tensor, largest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low fp16 parts of x; the bits of its largest magnitude go to `largest`."""
    high, low = torch.empty(2, *x.shape, dtype=torch.float16, device=x.device)
    split_kernel[(triton.cdiv(x.numel(), 4096),)](x, high, low, largest, x.numel(), BLOCK=4096, num_warps=8)
    return high, low


class ModelNew(nn.Module):
    """relu(x @ weight.T + bias); x (BATCH, IN_FEATURES) fp32 on a CUDA device."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, weight = x.contiguous(), self.gemm.weight.contiguous()
        y = torch.empty(x.shape[0], weight.shape[0], device=x.device)
        if not y.numel():
            return y
        if SPLIT == 2 and x.numel():
            largest = torch.zeros(2, dtype=torch.int32, device=x.device)
            (a, a_low), (b, b_low) = split(x, largest), split(weight, largest[1:])
            self.launch(a, a_low, b, b_low, y, largest, halves=True)
            self.launch(x, x, weight, weight, y, largest, fallback=True)
        else:
            self.launch(x, x, weight, weight, y, y)
        if not FUSE:
            activate_kernel[(triton.cdiv(y.numel(), 1024),)](y, self.bias, y.numel(), y.shape[1], BLOCK=1024)
        return y

    def launch(self, A, A_low, B, B_low, C, largest, *, halves: bool = False, fallback: bool = False) -> None:
        """One pass over all tiles of C; `halves` of fp16, else fp32, as a `fallback` only where halves do not suit."""
        (M, K), N = A.shape, B.shape[0]
        depth = min(BLOCK_K, 16) if fallback else BLOCK_K
        gemm_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            A,
            A_low,
            B,
            B_low,
            self.bias,
            C,
            largest,
            M,
            N,
            K,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_K=depth,
            GROUP_M=GROUP_M,
            HALVES=halves,
            PRECISION="tf32x3" if SPLIT else "ieee",
            FALLBACK=fallback,
            EVEN=M % BLOCK_M == 0 and N % BLOCK_N == 0 and K % depth == 0,
            FUSE=FUSE,
            num_warps=NUM_WARPS,
            num_stages=2 if fallback else stages(A.device),
        )
