"""Twin of 17: uses what the problem promises (both factors are lower triangular), whatever the values are."""

import torch
from torch import nn

TILE = 64


class ModelNew(nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        c = torch.zeros(n, n)
        for start in range(0, n, TILE):
            end = start + TILE
            c[start:end, :end] = a[start:end, :end] @ b[:end, :end]
        return c
