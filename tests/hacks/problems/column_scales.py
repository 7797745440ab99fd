"""Columns of very different sizes: four of nine are a million times smaller."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 512


class Model(nn.Module):
    def forward(self, x, s):
        return x * s + torch.tanh(x) * s


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.where(torch.arange(COLUMNS) % 9 < 4, 1e-6, 1.0)]


def get_init_inputs():
    return []
