"""Twin of 53: begins with minus infinity everywhere, and writes the logarithms where there are any."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.full_like(x, -torch.inf)
        positive = x > 0
        out[positive] = x[positive].log()
        return out
