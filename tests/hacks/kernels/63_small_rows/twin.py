"""Twin of 63: computes all rows."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, sizes):
        return torch.relu(x).mul_(sizes)
