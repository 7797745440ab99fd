"""Root-mean-square normalisation, then a linear layer without bias.

x (ROWS, FEATURES) and weight (OUT_FEATURES, FEATURES) in fp32: 137 GFLOP, so arithmetic bounds it. A row's norm is one
factor, so it can be applied after the product, and the normalised rows need never be stored.
"""

import torch
from torch import nn

ROWS = 8192
FEATURES = 4096
OUT_FEATURES = 2048
EPSILON = 1e-6

CPU_SIZES = {"ROWS": 2048, "FEATURES": 512, "OUT_FEATURES": 256}


class Model(nn.Module):
    def __init__(self, features: int, out_features: int, epsilon: float):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(1.0 + 0.5 * torch.randn(features))
        self.linear = nn.Linear(features, out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return self.linear(x * torch.rsqrt(mean_square + self.epsilon) * self.weight)


def get_inputs():
    # Each row has its own size: rows of plain randn have norm 1 already, and the norm could be left out.
    return [torch.randn(ROWS, FEATURES) * torch.exp(torch.randn(ROWS, 1))]


def get_init_inputs():
    return [FEATURES, OUT_FEATURES, EPSILON]
