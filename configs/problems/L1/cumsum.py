"""Running sum along the rows.

x (ROWS, COLUMNS) in fp32 gives y of the same shape: 4.3 GB read and written, so memory bandwidth bounds it. Each
element waits for all before it, so a row is scanned in blocks whose totals are carried on.
"""

import torch
from torch import nn

ROWS = 16384
COLUMNS = 32768

CPU_SIZES = {"ROWS": 1024, "COLUMNS": 4096}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
