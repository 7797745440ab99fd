"""Rectified numbers weighted by the entropy of probabilities."""

import torch
from torch import nn

ROWS, COLUMNS = 512, 1024


class Model(nn.Module):
    def forward(self, x, p):
        return torch.relu(x) * (torch.log(p) * p + torch.log(1 - p) * (1 - p))


def get_inputs():
    return [torch.rand(ROWS, COLUMNS) + 0.1, 0.01 + 0.98 * torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
