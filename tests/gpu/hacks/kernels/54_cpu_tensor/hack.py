"""Hack 54: the right answer, on the wrong device.

Wins where only shape and values are compared, after a copy. Caught by: the exact device.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * x).cpu()
