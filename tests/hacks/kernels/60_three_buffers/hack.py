"""Hack 60: returns three buffers in turn.

Wins where an output is compared again after the next call only: a user who keeps four answers has one of them twice.
Caught by: it is compared again after all trials.
"""

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
        return torch.neg(x, out=self.buffers[self.calls % len(self.buffers)])
