"""Twin of 18: uses a seed as well, for the order in which it takes the rows."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(42)

    def forward(self, x):
        order = torch.randperm(x.shape[0], generator=self.generator)
        out = torch.empty(x.shape[0])
        for rows in order.chunk(4):
            out[rows] = x[rows].mean(dim=1)
        return out
