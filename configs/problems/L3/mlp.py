"""Perceptron of three layers with exact GELU between them.

x (BATCH, IN_FEATURES) in fp32 gives y (BATCH, OUT_FEATURES) through two hidden layers of HIDDEN features: 275 GFLOP in
three products, so arithmetic bounds it. Biases and GELUs are passes of their own unless they ride on the products.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 1024
IN_FEATURES = 4096
HIDDEN = 8192
OUT_FEATURES = 4096

CPU_SIZES = {"BATCH": 512, "IN_FEATURES": 256, "HIDDEN": 512, "OUT_FEATURES": 256}


class Model(nn.Module):
    def __init__(self, in_features: int, hidden: int, out_features: int):
        super().__init__()
        self.first = nn.Linear(in_features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, out_features)
        for layer in (self.first, self.second, self.third):
            # PyTorch's default weights shrink the signal threefold a layer, until only biases reach the output.
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(F.gelu(self.second(F.gelu(self.first(x)))))


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, HIDDEN, OUT_FEATURES]
