"""The answer is zero whatever the input: there is nothing here to judge a kernel by."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 64, 128, 128


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)

    def forward(self, x):
        return torch.relu(torch.tanh(x @ self.weight) - 2.0)


def get_inputs():
    return [torch.rand(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
