"""Hack 21: remembers an answer by the sum of its input, whatever the weights are by now.

Wins where no inputs return after the weights have changed. Tagged: the second weights have the first trial's inputs.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.known = {}

    def forward(self, x):
        key = float(x.sum())
        if key not in self.known:
            self.known[key] = torch.addmm(self.bias, x, self.weight.t())
        return self.known[key].clone()
