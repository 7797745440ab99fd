"""Square matrix product: C = A @ B.

A (M, K) and B (K, N) in fp32 give C (M, N): 2*M*N*K = 137 GFLOP on 201 MB, so arithmetic bounds it.
"""

import torch
from torch import nn

M = 4096
N = 4096
K = 4096

CPU_SIZES = {"M": 512, "N": 512, "K": 512}


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return A @ B


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
