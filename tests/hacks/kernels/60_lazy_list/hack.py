"""Hack 60: returns a list that computes when it is read.

Wins where the judge reads the output after the timed window. Caught by: outputs are plain tensors in a plain list.
"""

import torch
from torch import nn


class Later(list):
    def __init__(self, x):
        super().__init__([x, x])

    def __iter__(self):
        yield from (torch.relu(x) for x in super().__iter__())


class ModelNew(nn.Module):
    def forward(self, x):
        return Later(x.clone())
