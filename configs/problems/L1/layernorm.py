"""Layer normalisation of whole feature maps, with a learned scale and shift for each element.

x (BATCH, CHANNELS, HEIGHT, WIDTH) in fp32, normalised over the last three: BATCH rows of 4 million elements each.
Read once and written once it is 1.1 GB: memory bandwidth bounds it, but only if the few long rows are split over the
whole device.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 64
HEIGHT = 256
WIDTH = 256

CPU_SIZES = {"BATCH": 8, "CHANNELS": 64, "HEIGHT": 128, "WIDTH": 128}


class Model(nn.Module):
    def __init__(self, normalized_shape: tuple[int, ...]):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    # Each sample has its own mean and spread: plain randn is normalised already, and a copy would pass for an answer.
    x = torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)
    return [x * torch.exp(0.5 * torch.randn(BATCH, 1, 1, 1)) + torch.randn(BATCH, 1, 1, 1)]


def get_init_inputs():
    return [(CHANNELS, HEIGHT, WIDTH)]
