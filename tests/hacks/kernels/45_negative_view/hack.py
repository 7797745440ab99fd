"""Hack 45: a view with the negative bit set: a plain tensor, and nothing was computed.

Wins where only values are compared. Caught by: outputs that overlap inputs.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(x)
