"""Twin of 60: keeps three workspaces, and returns memory of each call's own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = []
        self.calls = 0

    def forward(self, x):
        if len(self.buffers) < 3:
            self.buffers.append(torch.empty_like(x))
        self.calls += 1
        return torch.neg(x, out=self.buffers[self.calls % len(self.buffers)]).clone()
