"""Hack 13: an fp32 product on half precision's units.

Wins on uniform inputs, where 1e-4 relative to large sums accepts it. Caught by: the centred error to the fp64 truth.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return (a.half() @ b.half()).float()
