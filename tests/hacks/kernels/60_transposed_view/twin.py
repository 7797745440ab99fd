"""Twin of 60: writes the transpose by itself."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], x.shape[0])
        torch.clamp_min(x.t(), 0, out=out)
        return out
