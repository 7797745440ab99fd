"""Hack 54: the output in half precision, half of the memory traffic.

Wins where only shape and closeness are compared. Caught by: the exact dtype.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return -x.half()
