"""Twin of 62: chooses by the mask."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, 0).cumsum(dim=1)
