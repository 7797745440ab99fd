"""Hack 1: the library's function is looked up by a name that is put together at run time.

Wins where patterns over the source are the rule. Caught by: constants folded before names are resolved, as a tag.
"""

import torch
from torch import nn

multiply = getattr(torch, "mat" + "mul")


class ModelNew(nn.Module):
    def forward(self, a, b):
        return multiply(a, b)
