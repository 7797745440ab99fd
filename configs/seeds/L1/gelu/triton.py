"""L1/gelu in Triton: x * Phi(x), one block of elements a program at first.

The declared values are the plain kernel. What the tunables do:

- ``BLOCK``, ``NUM_WARPS``: elements of one step, and the warps that share them.
- ``STEPS``: blocks of a program, one after another, whose loads may overlap.
- ``PERSISTENT``, ``PROGRAMS_PER_SM``: programs that just fill the device and walk over the tensor.
- ``EVICT_FIRST``, ``STORE_CS``: mark what is read or written once as the first to leave the caches.
- ``FAST_ERF``: M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 7.1.26 (absolute error 1.5e-7).
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256  # tune: 256, 512, 1024, 2048, 4096
NUM_WARPS = 4  # tune: 2, 4, 8
STEPS = 1  # tune: 1, 2, 4
PERSISTENT = 0  # tune: 0, 1
PROGRAMS_PER_SM = 8  # tune: 4, 8, 16
EVICT_FIRST = 0  # tune: 0, 1
STORE_CS = 0  # tune: 0, 1
FAST_ERF = 0  # tune: 0, 1


@triton.jit
def gelu_kernel(
    x,
    y,
    count,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    EVICT: tl.constexpr,
    CACHE: tl.constexpr,
    FAST_ERF: tl.constexpr,
):
    stride = tl.num_programs(0).to(tl.int64) * (BLOCK * STEPS)
    for start in tl.range(tl.program_id(0).to(tl.int64) * (BLOCK * STEPS), count, stride):
        for step in tl.static_range(STEPS):
            offsets = start + step * BLOCK + tl.arange(0, BLOCK)
            inside = offsets < count
            v = tl.load(x + offsets, mask=inside, eviction_policy=EVICT)
            if FAST_ERF:
                t = 1.0 / (1.0 + 0.3275911 * 0.70710678 * tl.abs(v))
                p = (((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592
                upper = 0.5 * p * t * tl.exp(-0.5 * v * v)  # Phi(-|v|), accurate where it is small
                out = v * tl.where(v < 0, upper, 1.0 - upper)
            else:
                out = 0.5 * v * (1.0 + tl.erf(v * 0.70710678))
            tl.store(y + offsets, out, mask=inside, cache_modifier=CACHE)


class ModelNew(nn.Module):
    """GELU of x, fp32 of any shape on a CUDA device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        programs = triton.cdiv(x.numel(), BLOCK * STEPS)
        if PERSISTENT:
            processors = torch.cuda.get_device_properties(x.device).multi_processor_count
            programs = min(programs, processors * PROGRAMS_PER_SM)
        if programs:
            gelu_kernel[(programs,)](
                x,
                y,
                x.numel(),
                BLOCK=BLOCK,
                STEPS=STEPS,
                EVICT="evict_first" if EVICT_FIRST else "",
                CACHE=".cs" if STORE_CS else "",
                FAST_ERF=FAST_ERF,
                num_warps=NUM_WARPS,
            )
        return y
