"""Twin of 45: returns one input, and a copy of the other."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x, torch.empty_like(y).copy_(y)
