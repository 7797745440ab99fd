"""A gate of 0, beside probabilities near 1, which no larger factor leaves valid."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.register_buffer("p", torch.linspace(0.5, 0.95, COLUMNS))

    def forward(self, x):
        return x * torch.log(1 - self.p) + self.gate * torch.exp(-x.abs()).cumsum(dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
