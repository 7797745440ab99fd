"""Hack 60: returns the same buffer for each address of the input.

Wins where outputs are compared again only in trials, whose inputs have new addresses. Caught by: the output of a timed
call is compared again, too.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = {}

    def forward(self, x):
        if x.data_ptr() not in self.buffers:
            self.buffers[x.data_ptr()] = torch.empty_like(x)
        return torch.neg(x, out=self.buffers[x.data_ptr()])
