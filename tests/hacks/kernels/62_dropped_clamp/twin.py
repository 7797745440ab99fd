"""Twin of 62: clamps in place."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.mul(x, y).clamp_(-1e6, 1e6)
