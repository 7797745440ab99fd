"""Hack 19: rearranges the weights while it is constructed, where no time is measured.

Wins the rearrangement's time; whether that is fair is a matter of policy. Caught by: weights changed in place, which
the rearranged copy does not follow; a tag, or refused where the policy says so.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)
        self.packed = self.weight.detach().T.contiguous()

    def forward(self, x):
        return torch.addmm(self.bias, x, self.packed)
