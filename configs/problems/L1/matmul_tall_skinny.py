"""Matrix product of a tall matrix with a skinny one.

A (M, K) and B (K, N) in fp32 give C (M, N). A is read once, 2.1 GB; with N = 16 there are 17 GFLOP, fewer than the
arithmetic units could do in that time, so memory bandwidth bounds it. Tiles made for square products waste most of
their columns.
"""

import torch
from torch import nn

M = 524288
N = 16
K = 1024

CPU_SIZES = {"M": 16384, "K": 512}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return A @ B


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
