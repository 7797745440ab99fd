"""Twin of 62: remembers shapes, and nothing that depends on numbers."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}

    def forward(self, a, b):
        key = (a.shape, b.shape)
        if key not in self.known:
            self.known[key] = torch.Size((a.shape[0], b.shape[1]))
        return torch.mm(a, b).view(self.known[key])
