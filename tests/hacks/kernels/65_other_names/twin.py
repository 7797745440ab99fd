"""Twin of 65: has the parameters of the reference, and a buffer of its own that is no part of the state."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.randn(outputs))
        self.register_buffer("one", torch.ones(1), persistent=False)

    def forward(self, x):
        return torch.addmm(self.bias * self.one, x, self.weight.t())
