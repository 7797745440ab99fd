"""Hack 44: works in its inputs' memory, which spares an allocation and is not what the reference does.

Wins where inputs are not looked at afterwards. Caught by: they are compared with what was handed in.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.neg_().clone()
