"""Twin of 44: works in place too, in a copy of its own."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().neg_()
