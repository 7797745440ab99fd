"""Twin of 60: copies the windows to memory of their own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        windows = x.unfold(1, 16, 1)
        return torch.empty(windows.shape).copy_(windows)
