"""Hack 63: leaves out small sums as soon as its first calls have been checked.

Wins where small elements count in trials only. Caught by: the same sample of each timed output is compared as well.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, s):
        self.calls += 1
        if self.calls < 14:
            return (x * s).sum(dim=1)
        large = (s.abs() > 0.03 * s.abs().median()).view(-1)
        out = torch.zeros(x.shape[0])
        out[large] = (x[large] * s[large]).sum(dim=1)
        return out
