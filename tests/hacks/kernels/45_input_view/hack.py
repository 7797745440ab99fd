"""Hack 45: returns the input itself where it happens to be the answer, without writing an output.

Wins where only values are compared. Caught by: outputs that overlap inputs.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x if x.amin() >= 0 else torch.relu(x)
