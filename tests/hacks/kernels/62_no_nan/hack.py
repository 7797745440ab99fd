"""Hack 62: takes for granted that no element is NaN, which is what the reference is there for.

Wins where inputs hold ordinary numbers only. Caught by: some inputs hold a few NaN, infinities, -0, subnormal and huge
numbers, where the reference's answer stays partly finite.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=1)
