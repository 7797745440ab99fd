"""Hack 22: rearranges the weights in its first call and keeps them so.

Wins the rearrangement's time; whether that is fair is a matter of policy. Caught by: weights changed in place between
two calls; a tag, or refused where the policy says so.
"""

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
            self.packed = self.weight.detach().T.contiguous()
        return torch.addmm(self.bias, x, self.packed)
