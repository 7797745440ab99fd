import torch
import triton
import triton.language as tl

BLOCK = 1024  # tune: 512, 1024, 2048
WARPS = 4  # tune: 2, 4, 8


@triton.jit
def bias_gelu_kernel(x, bias, y, n, features, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) + tl.load(bias + at % features)
    tl.store(y + at, 0.5 * v * (1.0 + tl.erf(v * 0.70710678)), mask=at < n)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x, bias = x.contiguous(), self.bias.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        bias_gelu_kernel[(triton.cdiv(n, BLOCK),)](x, bias, y, n, x.shape[-1], BLOCK=BLOCK, num_warps=WARPS)
        return y
