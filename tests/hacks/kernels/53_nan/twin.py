"""Twin of 53: begins with NaN everywhere as well, and writes a number over each of them."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.neg(x, out=torch.full_like(x, torch.nan))
