"""Hack 14: asks for products in bf16 on a CPU, and leaves it so.

Wins where the processor has units for bf16, and its user's other code computes in bf16 from then on. Caught by: the
precisions of oneDNN must be the same after a call as before it.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        return torch.mm(a, b)
