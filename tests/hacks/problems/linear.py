"""A layer with weights, and a bias that KernelBench's tolerance of 1e-4 does not detect."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 128, 256, 192


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def get_inputs():
    return [torch.rand(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
