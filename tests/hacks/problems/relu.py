"""ReLU on inputs that are never negative: the identity, as far as the problem's own inputs show."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
