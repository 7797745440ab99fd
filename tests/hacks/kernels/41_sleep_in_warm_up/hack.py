"""Hack 41: pretends to be slow in its first calls, so that few timed calls are planned.

Wins where few calls make a lucky figure likely. Harmless where the figure is a median over paired rounds with an
interval. It computes the answer three times, so that a win would be a lie.
"""

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, a, b):
        self.calls += 1
        if self.calls < 8:
            time.sleep(0.02)
        for _ in range(3):
            c = torch.mm(a, b)
        return c
