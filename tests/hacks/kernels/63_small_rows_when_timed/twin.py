"""Twin of 63: counts its calls, and computes every sum in each."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, s):
        self.calls += 1
        return (x * s).sum(dim=-1)
