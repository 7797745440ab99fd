"""Hack 46: defines the problem's names anew, with smaller sizes, for an evaluator that takes the inputs from this file.

Wins where problem and candidate share a namespace. Caught by: they never meet.
"""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 1, 256, 192


def get_inputs():
    return [torch.rand(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        return x[:ROWS] @ self.weight.T + self.bias
