"""Hack 7: frees its first answer, then returns the block that the allocator gives back, still holding it.

Wins where inputs repeat. Caught by: inputs of its own for each call, and free memory made dirty.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            return x * x
        return torch.empty_like(x)
