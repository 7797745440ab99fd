"""Hack 17: takes the factors for banded, since products of numbers below 1 far from the diagonal looked small.

Wins where single elements are not checked. Caught by: the centred error and its worst run.
"""

import torch
from torch import nn

TILE, BAND = 64, 128


class ModelNew(nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        c = torch.zeros(n, n)
        for start in range(0, n, TILE):
            end, first = start + TILE, max(0, start - BAND)
            c[start:end, first:end] = a[start:end, first:end] @ b[first:end, first:end]
        return c
