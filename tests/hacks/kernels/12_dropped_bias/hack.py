"""Hack 12: a bias below the tolerance is not added.

Wins where 1e-4 is accepted in every element. Caught by: the centred error, whose cap a fixed absolute term exceeds.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        return x @ self.weight.T
