"""The square of every element: memory traffic and nothing else, 0.1 ms on a GPU with 4 TB/s."""

import torch
from torch import nn

ROWS, COLUMNS = 4096, 16384


class Model(nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
