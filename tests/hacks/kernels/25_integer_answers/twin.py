"""Twin of 25: counts its calls, and answers each."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.mul(x, x).sum(dim=1)
