"""Twin of 59: takes them out of a list of its own."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, pair):
        mine = list(pair)
        return mine.pop() + mine.pop()
