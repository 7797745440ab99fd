"""Twin of 60: two tensors, each with memory of its own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(2, *x.shape)
        torch.clamp_min(x, 0, out=y[0])
        y[1].copy_(y[0])
        return [y[0], y[1]]
