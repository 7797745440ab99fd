"""Convolution with a square kernel, stride 1, same size, no bias.

x (BATCH, CHANNELS, SIZE, SIZE) and weight (OUT_CHANNELS, CHANNELS, KERNEL, KERNEL) in fp32: 155 GFLOP on 0.5 GB, so
arithmetic bounds it, as a matrix product with K = CHANNELS * KERNEL * KERNEL whose left side is never stored.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 128
OUT_CHANNELS = 128
SIZE = 128
KERNEL = 3

CPU_SIZES = {"BATCH": 4, "CHANNELS": 32, "OUT_CHANNELS": 32, "SIZE": 64}


class Model(nn.Module):
    def __init__(self, channels: int, out_channels: int, kernel: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel, padding=kernel // 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, OUT_CHANNELS, KERNEL]
