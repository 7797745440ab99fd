"""Twin of 14: changes a flag for its own call and puts it back."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with torch.backends.mkldnn.flags(enabled=True):
            return torch.mm(a, b)
