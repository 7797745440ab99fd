"""The part of the answer that depends on the input is below KernelBench's tolerance; only the bias is above it."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 64, 128, 256


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(1e-5 * torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


def get_inputs():
    return [torch.rand(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
