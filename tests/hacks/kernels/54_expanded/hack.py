"""Hack 54: one column, shown many times by a stride of zero: a thousandth of the memory traffic.

Wins where shape and values are compared. Caught by: a tensor that was not written as often as the reference's.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True).expand(x.shape)
