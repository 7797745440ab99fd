"""Twin of 11: tiles that do not divide the rows, with the remainder written too."""

import torch
from torch import nn

TILE = 80


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        for start in range(0, a.shape[0], TILE):
            torch.mm(a[start : start + TILE], b, out=c[start : start + TILE])
        return c
