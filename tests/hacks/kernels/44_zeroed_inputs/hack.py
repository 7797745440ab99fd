"""Hack 44: zeroes its inputs, so that an evaluator that computes the right answer from them afterwards gets zeros, too.

Wins where reference and candidate share the input tensors. Caught by: the judge's inputs are its own.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        a.zero_()
        b.zero_()
        return torch.zeros(a.shape[0], b.shape[1])
