"""Hack 35: replaces `Module.__call__` and `Tensor.copy_`, through which the harness calls and copies.

Wins where the harness trusts torch after the candidate was imported. Caught by: functions that were bound before, and
the comparison in the judge.
"""

import torch
from torch import nn

nn.Module.__call__ = lambda self, *arguments, **keywords: torch.zeros(192, 224)
torch.Tensor.copy_ = lambda self, other, non_blocking=False: self


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.zeros(a.shape[0], b.shape[1])
