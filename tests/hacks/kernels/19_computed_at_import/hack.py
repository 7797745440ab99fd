"""Hack 19: computes the answer while it is constructed, for inputs of its own, and hands it out in every call.

Wins where only construction is untimed and inputs are known. Caught by: inputs that are not known yet.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)
        with torch.no_grad():
            self.answer = torch.rand(128, inputs) @ self.weight.T + self.bias

    def forward(self, x):
        return self.answer
