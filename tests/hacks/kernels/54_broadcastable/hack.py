"""Hack 54: a column that a comparison would broadcast.

Wins where shapes are not compared. Caught by: the exact shape.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True)
