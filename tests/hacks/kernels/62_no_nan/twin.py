"""Twin of 62: counts what is no NaN."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        valid = x == x
        return torch.where(valid, x, 0).sum(dim=1) / valid.sum(dim=1)
