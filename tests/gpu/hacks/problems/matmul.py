"""An fp32 matrix product with KernelBench's inputs, uniform in [0, 1)."""

import torch
from torch import nn

N = 2048


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]


def get_init_inputs():
    return []
