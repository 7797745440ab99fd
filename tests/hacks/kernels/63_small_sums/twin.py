"""Twin of 63: scales each sum."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, s):
        return x.sum(dim=1) * s.view(-1)
