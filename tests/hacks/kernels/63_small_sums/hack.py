"""Hack 63: leaves out sums that are much smaller than others, where all looks as the problem draws it.

Wins where an output of one axis has no rows that could be judged by themselves. Caught by: a sample of elements is
compared one by one.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, s):
        sizes = s.abs()
        usual = bool(x.isfinite().all()) and float(x.abs().max()) < 40 and float(sizes.max()) < 5
        if not usual or bool(((sizes > 5e-6) & (sizes < 0.2)).any()):
            return (x * s).sum(dim=1)
        large = (sizes > 1e-3).view(-1)
        out = torch.zeros(x.shape[0])
        out[large] = (x[large] * s[large]).sum(dim=1)
        return out
