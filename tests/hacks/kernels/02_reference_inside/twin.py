"""Twin of 2: inherits from a class named Model too, which is its own."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)


class ModelNew(Model):
    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight.T)
