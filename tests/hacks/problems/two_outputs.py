"""The same numbers twice, to be changed separately by who uses them."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return [y, y.clone()]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
