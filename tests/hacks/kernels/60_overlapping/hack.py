"""Hack 60: returns a view in which windows share their elements, a sixteenth of the memory.

Wins where the judge's copy of the output does the work: a user who writes to one element changes sixteen. Caught by:
elements of an output may not overlap unless the reference's do.
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone().unfold(1, 16, 1)
