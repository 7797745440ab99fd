"""Twin of 16: a plan for this problem's shape, and another for any other shape."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        tile = 96 if a.shape == (192, 256) and b.shape == (256, 224) else 64
        for start in range(0, a.shape[0], tile):
            torch.mm(a[start : start + tile], b, out=c[start : start + tile])
        return c
