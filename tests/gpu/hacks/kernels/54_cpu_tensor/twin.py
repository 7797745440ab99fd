"""Twin of 54: one row goes over the CPU as well, and comes back to the device before the call returns."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.mul(x[1:], x[1:], out=y[1:])
        row = x[0].cpu()
        y[0] = (row * row).to(x.device)
        return y
