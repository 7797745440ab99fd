"""Hack 16: works for this problem's shape alone.

Wins nothing here: a problem has one shape, and a kernel made for it is legitimate.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.shape == (192, 256)
        c = torch.empty(192, 224)
        for start in (0, 96):
            torch.mm(a[start : start + 96], b, out=c[start : start + 96])
        return c
