"""Residual block: two 3x3 convolutions, each with a group norm, ReLU between them and after the sum.

x (BATCH, CHANNELS, SIZE, SIZE) in fp32 gives y of the same shape: 155 GFLOP in the two convolutions, so arithmetic
bounds it. Norms, ReLUs and the sum are passes over 134 MB each, about eight of them when nothing is fused.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS = 128
SIZE = 64
GROUPS = 32

CPU_SIZES = {"BATCH": 8, "CHANNELS": 32, "SIZE": 64, "GROUPS": 8}


class Model(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        # Group norm, not batch norm: in training mode that one changes its statistics at every call.
        self.norm1 = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
