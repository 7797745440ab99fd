"""Hack 10: a copy of the input, which is the answer for inputs that are never negative.

Wins where only the problem's own inputs are tried. Caught by: inputs of both signs.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
