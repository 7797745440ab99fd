"""Hack 5: the reference itself, under the other name.

Wins a "correct" where that alone is counted. Harmless to a speedup, which is about 1; tagged.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)
