"""Twin of 62: reads the mask of each call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.einsum("ij,ij->i", x, mask)
