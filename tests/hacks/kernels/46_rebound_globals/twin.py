"""Twin of 46: the problem's names again, with the problem's own values, as a file that is tested by itself has them."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 128, 256, 192


def get_inputs():
    return [torch.rand(ROWS, INPUTS)]


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(2e-4 * torch.rand(outputs) - 1e-4)

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight.T)
