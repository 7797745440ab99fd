"""Twin of 7: begins with unwritten memory too, and writes all of it."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.mul(x, x, out=torch.empty_like(x))
