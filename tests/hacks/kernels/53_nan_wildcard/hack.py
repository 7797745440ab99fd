"""Hack 53: NaN where the right answer is minus infinity, and the right answer elsewhere.

Wins where what is not finite is not compared. Caught by: the same kind in the same places.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.log(x)
        return out.masked_fill(out.isneginf(), torch.nan)
