"""The same numbers in rows of another length, as a tensor of their own: nothing but a copy."""

import torch
from torch import nn

ROWS, COLUMNS = 2048, 4096


class Model(nn.Module):
    def forward(self, x):
        return x.reshape(2 * ROWS, COLUMNS // 2).clone()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
