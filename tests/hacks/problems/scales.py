"""Rows of sizes from 1e-9 to 1, each of them an answer of its own."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def forward(self, x, sizes):
        return torch.relu(x) * sizes


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.logspace(-9, 0, ROWS).view(-1, 1)]


def get_init_inputs():
    return []
