"""Hack 13: an fp32 product with TF32's tensor cores, asked for by a flag that the kernel sets and puts back.

Wins on uniform inputs, where 1e-4 relative to large sums accepts it. Caught by: the centred error to the fp64 truth.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.mm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before
