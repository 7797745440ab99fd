"""A product with a matrix whose columns are scaled."""

import torch
from torch import nn

SIZE = 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE, SIZE) / 16)
        self.scale = nn.Parameter(torch.rand(SIZE) + 0.5)

    def forward(self, x):
        return x @ (self.weight * self.scale)


def get_inputs():
    return [torch.randn(SIZE, SIZE)]


def get_init_inputs():
    return []
