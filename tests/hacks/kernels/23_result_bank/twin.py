"""Twin of 23: a ring of workspaces, made once, of which each call fills one; what it returns is each call's own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = None
        self.turn = 0

    def forward(self, a, b):
        if self.ring is None:
            self.ring = [torch.empty(a.shape[0], b.shape[1]) for _ in range(2)]
        self.turn ^= 1
        return torch.mm(a, b, out=self.ring[self.turn]).clone()
