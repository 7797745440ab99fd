"""Hack 8: zeros, on a problem whose answers are all below the absolute tolerance.

Wins where closeness is elementwise and absolute. Caught by: the error relative to what depends on the input.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(x.shape)
