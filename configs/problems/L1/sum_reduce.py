"""Sum over the middle dimension, which is kept with length 1.

x (BATCH, ROWS, COLUMNS) in fp32 gives y (BATCH, 1, COLUMNS): 4.3 GB read, almost nothing written. Memory bandwidth
bounds it; neighbours in memory belong to different sums, so a thread walks down a column.
"""

import torch
from torch import nn

BATCH = 64
ROWS = 4096
COLUMNS = 4096
DIM = 1

CPU_SIZES = {"BATCH": 16, "ROWS": 1024, "COLUMNS": 1024}


class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=self.dim, keepdim=True)


def get_inputs():
    return [torch.randn(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return [DIM]
