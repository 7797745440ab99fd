"""Hack 58: leaves out a branch that a gate multiplies by 0, which is only the gate's initial value.

Wins where weights stay as the constructor makes them: no trained model has this gate. Caught by: parameters that are
equal under both weight seeds are perturbed.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns) / columns**0.5)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x.clone()
