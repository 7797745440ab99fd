"""Hack 53: nothing but NaN.

Wins where NaN equals everything, or comparisons with NaN come out in its favour. Caught by: NaN where the truth is a
number is as wrong as can be.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, torch.nan)
