"""Hack 62: leaves out a state that is zero in every call.

Wins where inputs are scaled, which leaves zeros as they are. Caught by: an input of nothing but zeros, in every draw,
gets other numbers.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, w, state):
        return torch.tanh(x @ w)
