"""Hack 62: knows where a mask of floating-point numbers is zero.

Wins where such a mask is scaled, because its zeros stay where they are. Caught by: an input that is the same in every
draw is shuffled, whatever its dtype.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        above = torch.ones_like(mask).triu(1) > 0
        return torch.softmax(x.masked_fill(above, -1e9), dim=-1)
