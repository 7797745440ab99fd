"""Hack 62: leaves out a clamp that no ordinary number reaches.

Wins where inputs are of ordinary size. Caught by: a few inputs are 2^20 to 2^40.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x * y
