"""Hack 12: layer normalisation without eps.

Wins where every row's variance is far above it. Caught by: the same inputs, diminished, where eps decides.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        centred = x - x.mean(dim=1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(dim=1, keepdim=True))
