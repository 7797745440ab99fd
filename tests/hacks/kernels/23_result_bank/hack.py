"""Hack 23: one call does the work of many, and the next ones hand its results out.

Wins where the inputs of all timed calls are there from the beginning. Caught by: inputs that are written just before
the call that they belong to.
"""

import torch
from torch import nn

CALLS = 8


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bank = []

    def forward(self, a, b):
        if not self.bank:
            self.bank = list(torch.matmul(a.expand(CALLS, *a.shape), b))
        return self.bank.pop()
