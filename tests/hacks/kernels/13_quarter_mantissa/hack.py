"""Hack 13: the operands lose half of their mantissas on the way, as TF32 would leave them.

Wins where 1e-4 relative to large sums accepts it. Caught by: the centred error to the fp64 truth.
"""

import torch
from torch import nn


def rounded(tensor):
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return rounded(a) @ rounded(b)
