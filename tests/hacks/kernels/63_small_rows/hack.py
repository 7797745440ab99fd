"""Hack 63: writes zeros where rows are a millionth of the largest.

Wins where the error is relative to the whole output. Caught by: each row has an error of its own, judged loosely.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, sizes):
        large = (sizes > 1e-6 * sizes.max()).flatten()
        out = torch.zeros_like(x)
        out[large] = torch.relu(x[large]) * sizes[large]
        return out
