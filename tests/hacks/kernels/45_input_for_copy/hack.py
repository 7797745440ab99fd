"""Hack 45: returns an input where the reference returns a copy of it.

Wins where a reference that returns one input as it is lets the other outputs be inputs as well. Caught by: each output
may share memory with an input only if the reference's does.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x, y
