"""Twin of 26: asks the machine, not the harness, and chooses its tile by that."""

import os

import torch
from torch import nn

TILE = 96 if (os.cpu_count() or 1) > 1 else 192


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.cat([torch.mm(part, b) for part in a.split(TILE)])
