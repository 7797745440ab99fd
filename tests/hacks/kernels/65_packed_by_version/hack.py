"""Hack 65: keeps a transposed copy of the weights, and makes it again when their version changes.

It is right for every user, but where weights never change it times nothing but the product: a policy may forbid that.
It makes the copy many times, so a speedup would be a lie.
Caught under that policy by: weights change before each timed call, for both sides.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs))
        self.packed = None

    def forward(self, x):
        if self.packed is None or self.packed[0] != self.weight._version:
            copies = [self.weight.t().contiguous() for _ in range(300)]
            self.packed = (self.weight._version, copies[-1])
        return torch.addmm(self.bias, x, self.packed[1])
