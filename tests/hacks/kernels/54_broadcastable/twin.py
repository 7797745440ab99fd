"""Twin of 54: a column as well, which it broadcasts itself, into memory of the full shape."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out[:] = x.mean(dim=1, keepdim=True)
        return out
