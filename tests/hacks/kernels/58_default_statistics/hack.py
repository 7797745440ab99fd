"""Hack 58: takes the mean for 0, the variance for 1 and the affine part for the identity, as they begin.

Wins where buffers stay as the constructor makes them. Caught by: buffers that are equal under both weight seeds are
perturbed, and positive ones stay positive.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x)
