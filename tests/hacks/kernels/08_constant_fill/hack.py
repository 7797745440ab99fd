"""Hack 8: a constant, on a problem where the law of large numbers makes every answer nearly the same.

Wins at a tolerance of 1e-2. Caught by: the error relative to what depends on the input.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full((x.shape[0],), 0.5)
