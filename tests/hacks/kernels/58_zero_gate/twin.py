"""Twin of 58: computes the branch, whatever the gate is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns) / columns**0.5)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        branch = torch.relu(x @ self.weight)
        return torch.addcmul(x, self.gate, branch)
