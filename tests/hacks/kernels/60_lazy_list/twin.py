"""Twin of 60: a plain list, filled in the call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return [torch.relu(x) for _ in range(2)]
