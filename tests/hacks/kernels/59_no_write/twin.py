"""Twin of 59: writes the input, as the reference does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        torch.mul(x, 2, out=x)
        return torch.sum(x, dim=1)
