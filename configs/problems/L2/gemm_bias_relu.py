"""Linear layer, a bias of its own, ReLU.

x (BATCH, IN_FEATURES) and weight (OUT_FEATURES, IN_FEATURES) in fp32: 137 GFLOP, so arithmetic bounds it. Bias and
ReLU cost nothing when they ride on the product's last write, and one pass over the output each when they do not.
"""

import torch
from torch import nn

BATCH = 1024
IN_FEATURES = 8192
OUT_FEATURES = 8192

CPU_SIZES = {"BATCH": 2048, "IN_FEATURES": 128, "OUT_FEATURES": 1024}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.gemm(x) + self.bias)


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
