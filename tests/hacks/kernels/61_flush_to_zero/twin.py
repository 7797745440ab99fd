"""Twin of 61: leaves the modes alone, and saves one pass."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.exp(-x).mul_(0.5)
