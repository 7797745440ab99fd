"""Twin of 21: remembers how to compute, by the input's shape."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.known = {}

    def forward(self, x):
        if x.shape not in self.known:
            self.known[x.shape] = torch.mm if x.shape[0] > 1 else torch.matmul
        return self.known[x.shape](x, self.weight.t()) + self.bias
