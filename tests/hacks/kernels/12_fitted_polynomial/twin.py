"""Twin of 12: GELU by another formula, which holds everywhere."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * (0.5 * torch.special.erfc(x * -(0.5**0.5)))
