"""Hack 9: one answer, computed for an input of its own, returned for every input.

Wins where the bias is all that the tolerance sees. Caught by: the error relative to the answers' mean over inputs.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(1e-5 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        template = 0.5 * self.weight.sum(dim=0) + self.bias
        return template.repeat(x.shape[0], 1)
