"""Hack 60: returns memory that is copied when it is first used.

Wins where that happens after the timed window. Harmless by: the address of each output is asked for inside the window,
which makes the copy. It copies twice besides.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x.clone().clone()
        return torch._lazy_clone(x).view(2 * x.shape[0], x.shape[1] // 2)
