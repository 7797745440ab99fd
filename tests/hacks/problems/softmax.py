"""Softmax over rows; the nominal logits are small enough for an exponential without the maximum taken off."""

import torch
from torch import nn

ROWS, COLUMNS = 128, 2048


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [2 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
