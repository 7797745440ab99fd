"""Convolution with bias, ReLU, 2x2 maximum pooling.

x (BATCH, CHANNELS, SIZE, SIZE) in fp32 gives y (BATCH, OUT_CHANNELS, SIZE / 2, SIZE / 2): 77 GFLOP, so arithmetic
bounds the convolution. Its output is 268 MB, which need never be stored: a tile can be pooled where it was computed.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 64
OUT_CHANNELS = 128
SIZE = 128
KERNEL = 3

CPU_SIZES = {"BATCH": 8, "CHANNELS": 16, "OUT_CHANNELS": 32, "SIZE": 64}


class Model(nn.Module):
    def __init__(self, channels: int, out_channels: int, kernel: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel, padding=kernel // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(self.conv(x)), 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS, KERNEL]
