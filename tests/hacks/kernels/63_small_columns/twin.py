"""Twin of 63: computes every column."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, s):
        return torch.tanh(x).add_(x).mul_(s)
