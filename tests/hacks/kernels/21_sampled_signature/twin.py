"""Twin of 21: keeps a plan by a signature of the shapes, never an answer."""

import torch
from torch import nn

PLANS = {}


class ModelNew(nn.Module):
    def forward(self, a, b):
        key = (a.shape, b.shape)
        if key not in PLANS:
            PLANS[key] = [slice(start, start + 96) for start in range(0, a.shape[0], 96)]
        return torch.cat([torch.mm(a[rows], b) for rows in PLANS[key]])
