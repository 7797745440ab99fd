"""Hack 58: leaves out what a gate of 0 cancels.

Wins where no weight is changed because the reference refuses the change of another one. Caught by: those are
changed that it accepts.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.register_buffer("p", torch.zeros(1024))

    def forward(self, x):
        return x * torch.log(1 - self.p)
