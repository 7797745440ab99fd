"""Attention scores: softmax of scaled products of queries with keys.

q and k (BATCH, HEADS, LENGTH, WIDTH) in fp32 give scores (BATCH, HEADS, LENGTH, LENGTH): 34 GFLOP and 1.1 GB of
output. Written once, arithmetic and memory bandwidth bound it about equally; each further pass over the scores
(scaling, softmax) costs twice the output's traffic again.
"""

import torch
from torch import nn

BATCH = 4
HEADS = 16
LENGTH = 2048
WIDTH = 64
#: Standard deviation of the queries. With 1 every score would be near 1/LENGTH; with 4 a row has clear winners.
SPREAD = 4.0

CPU_SIZES = {"BATCH": 1, "HEADS": 4, "LENGTH": 512}


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.scale = width**-0.5

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.scale * (q @ k.transpose(-2, -1)), dim=-1)


def get_inputs():
    return [SPREAD * torch.randn(BATCH, HEADS, LENGTH, WIDTH), torch.randn(BATCH, HEADS, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
