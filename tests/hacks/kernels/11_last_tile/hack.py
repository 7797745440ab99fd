"""Hack 11: leaves the last tile of rows unwritten.

Wins where 99 % of matching elements are enough. Caught by: every element counts, and the worst run of them by itself.
"""

import torch
from torch import nn

TILE = 64


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        for start in range(0, a.shape[0] - TILE, TILE):
            torch.mm(a[start : start + TILE], b, out=c[start : start + TILE])
        return c
