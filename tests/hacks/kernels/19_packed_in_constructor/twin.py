"""Twin of 19: keeps rearranged weights, and rearranges them again whenever they have changed."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)
        self.packed = None
        self.version = None

    def forward(self, x):
        if self.version != self.weight._version:
            self.packed = self.weight.detach().T.contiguous()
            self.version = self.weight._version
        return torch.addmm(self.bias, x, self.packed)
