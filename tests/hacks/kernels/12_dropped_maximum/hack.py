"""Hack 12: a softmax that does not take the maximum off, one pass over the data less.

Wins where inputs are small. Caught by: the same inputs, enlarged, on which the exponential overflows.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp(x)
        return powers / powers.sum(dim=1, keepdim=True)
