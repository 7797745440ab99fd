"""Hack 60: writes each answer over the one before.

Wins where each output is read before the next call: a user who keeps two answers has the last one twice. Caught by: an
output is compared again after the next call.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
        torch.neg(x, out=self.out)
        return self.out
