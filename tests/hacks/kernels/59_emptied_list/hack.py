"""Hack 59: takes the tensors out of the list that it is given.

Wins where inputs are compared tensor by tensor. Caught by: containers of inputs must hold what they held.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, pair):
        return pair.pop() + pair.pop()
