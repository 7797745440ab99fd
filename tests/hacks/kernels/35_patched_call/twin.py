"""Twin of 35: a `__call__` and a `copy_` too, which are methods of classes of its own."""

import torch
from torch import nn


class Buffer:
    def __init__(self, rows, columns):
        self.tensor = torch.empty(rows, columns)

    def copy_(self, other):
        self.tensor.copy_(other)
        return self


class ModelNew(nn.Module):
    def __call__(self, a, b):
        return self.forward(a, b)

    def forward(self, a, b):
        left = Buffer(*a.shape).copy_(a)
        return torch.mm(left.tensor, b)
