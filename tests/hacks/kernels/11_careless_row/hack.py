"""Hack 11: one row in 192 is computed in half precision.

Wins where errors are averaged over the whole output or a share of mismatches is allowed. Caught by: the centred error.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.mm(a, b)
        c[17] = (a[17].half() @ b.half()).float()
        return c
