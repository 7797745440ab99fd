"""Product of two lower triangular matrices: a third of the arithmetic of a full one, for who looks at the structure."""

import torch
from torch import nn

N = 256


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))


def get_inputs():
    return [torch.tril(torch.rand(N, N)), torch.tril(torch.rand(N, N))]


def get_init_inputs():
    return []
