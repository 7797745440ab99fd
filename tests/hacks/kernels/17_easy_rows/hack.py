"""Hack 17: looks at a few rows, and takes the cheap path for all when it finds easy ones.

Wins where every input is drawn from one distribution. Caught by: inputs of which only some rows are easy.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x[:: x.shape[0] // 16].amin(dim=1).amax() >= 0:
            return x.clone()
        return torch.relu(x)
