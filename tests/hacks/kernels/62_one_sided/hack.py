"""Hack 62: leaves out a rectifier that the problem's positive numbers never need.

Wins where inputs are not transformed at all because one of them must stay a probability. Caught by: a
transform is also tried on one input at a time.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, p):
        return x * (torch.log(p) * p + torch.log(1 - p) * (1 - p))
