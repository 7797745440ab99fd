"""Twin of 65: counts its calls as well, and reads the weights in each."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 7:
            return torch.addmm(self.bias, x, self.weight.t())
        return torch.nn.functional.linear(x, self.weight, self.bias)
