"""Hack 54: an output that hangs in a graph of gradients, so that copying it might do more than copying.

Wins nothing here. It computes the answer three times, so that a win would be a lie.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with torch.enable_grad():
            for _ in range(3):
                c = torch.mm(a.detach().requires_grad_(), b)
        return c
