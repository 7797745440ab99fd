"""Hack 58: leaves out a product with a matrix that is the identity only at the beginning.

Wins where weights stay as the constructor makes them. Caught by: parameters that are equal under both weight seeds are
perturbed.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(columns))

    def forward(self, x):
        return torch.relu(x)
