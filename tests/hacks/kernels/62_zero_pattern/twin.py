"""Twin of 62: reads the mask."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.softmax(torch.where(mask == 0, -1e9, x), dim=-1)
