"""The sums of the sketch in one pass over the tensor: a Triton kernel for a dozen passes of torch.

The judge sketches the output after each timed call, which may have written gigabytes, and no other process may use the
device meanwhile. Here each element is read once, and its sign is read from the second-level cache.
"""

import torch
import triton
import triton.language as tl

#: Buckets of one program.
_BLOCK = 512
#: Rows of one program, and rows loaded before the first is added, which hides the latency of memory.
_ROWS = 64
_AT_ONCE = 16


def add_up(flat: torch.Tensor, signs: torch.Tensor, starts: torch.Tensor, *, buckets: int, rows: int) -> torch.Tensor:
    """Add elements `buckets` apart, each times its sign, in fp64.

    The result is deterministic: every program adds its rows in order, and torch adds the programs' sums. The tensor is
    contiguous, the signs are int8, and `starts` (int64) says where the signs of each stretch of `rows` rows begin.
    """
    if rows % _ROWS:
        raise ValueError(f"a stretch has {rows} rows; it must have a multiple of {_ROWS}, the rows of one program")
    if not flat.numel():
        return torch.zeros(buckets, dtype=torch.float64, device=flat.device)
    programs = -(-flat.numel() // (buckets * _ROWS))
    sums = torch.empty(programs, buckets, dtype=torch.float64, device=flat.device)
    grid = (triton.cdiv(buckets, _BLOCK), programs)
    with torch.cuda.device(flat.device):
        _add_up[grid](
            flat, signs, starts, sums, flat.numel(), buckets, rows, ROWS=_ROWS, AT_ONCE=_AT_ONCE, BLOCK=_BLOCK
        )
    return sums.sum(0)


@triton.jit  # type: ignore[untyped-decorator]  # triton is not typed
def _add_up(  # type: ignore[no-untyped-def]
    flat, signs, starts, sums, elements, buckets, rows, ROWS: tl.constexpr, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr
):
    bucket = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = bucket < buckets
    first = tl.program_id(1).to(tl.int64) * ROWS
    stretch = first // rows
    sign = signs + tl.load(starts + stretch) + (first - stretch * rows) * buckets
    total = tl.zeros((BLOCK,), tl.float64)
    for begun in range(0, ROWS, AT_ONCE):
        for more in tl.static_range(AT_ONCE):
            place = (begun + more) * buckets + bucket
            exists = inside & (first * buckets + place < elements)
            element = tl.load(flat + first * buckets + place, mask=exists, other=0)
            # A product with a sign is exact.
            total += element.to(tl.float64) * tl.load(sign + place, mask=exists, other=1).to(tl.float64)
    tl.store(sums + tl.program_id(1).to(tl.int64) * buckets + bucket, total, mask=inside)
