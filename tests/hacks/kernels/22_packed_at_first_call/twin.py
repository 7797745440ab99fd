"""Twin of 22: makes room for the rearranged weights in its first call, and rearranges them in every one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = torch.empty(self.weight.shape[1], self.weight.shape[0])
        self.packed.copy_(self.weight.detach().T)
        return torch.addmm(self.bias, x, self.packed)
