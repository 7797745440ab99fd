"""The conjugate of a sum, as numbers in memory."""

import torch
from torch import nn

COUNT = 1 << 20


class Model(nn.Module):
    def forward(self, x, y):
        return torch.conj_physical(x + y)


def get_inputs():
    return [torch.randn(COUNT, dtype=torch.complex64), torch.randn(COUNT, dtype=torch.complex64)]


def get_init_inputs():
    return []
