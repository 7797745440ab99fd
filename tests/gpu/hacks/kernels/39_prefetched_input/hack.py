"""Hack 39: keeps a copy of its input on a stream of its own after each call, to have it at hand in the next one.

Wins where the next call's input is already where the candidate can reach it. Caught by: inputs that are written just
before the call that they belong to, and destroyed after it.
"""

import torch
from torch import nn

side = torch.cuda.Stream()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.next = None

    def forward(self, x):
        ahead = self.next
        with torch.cuda.stream(side):
            self.next = x * x
        return x * x if ahead is None else ahead
