"""Twin of 58: multiplies by the matrix, whatever it holds."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(columns))

    def forward(self, x):
        return torch.mm(x, self.weight).relu_()
