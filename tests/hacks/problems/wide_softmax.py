"""Softmax over rows so long that every answer is below KernelBench's absolute tolerance: zeros pass there."""

import torch
from torch import nn

ROWS, COLUMNS = 16, 32768


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
