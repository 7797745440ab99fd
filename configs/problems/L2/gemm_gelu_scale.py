"""Linear layer, exact GELU, a learned factor for each output feature.

x (BATCH, IN_FEATURES) and weight (OUT_FEATURES, IN_FEATURES) in fp32: 137 GFLOP, so arithmetic bounds it. GELU and
factor are two more passes over the output unless they ride on the product's last write.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2048
IN_FEATURES = 4096
OUT_FEATURES = 8192

CPU_SIZES = {"BATCH": 1024, "IN_FEATURES": 256, "OUT_FEATURES": 1024}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.gemm(x)) * self.scale


def get_inputs():
    return [torch.randn(BATCH, IN_FEATURES)]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
