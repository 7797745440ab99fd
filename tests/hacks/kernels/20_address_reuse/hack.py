"""Hack 20: takes a tensor at another address for new, and the same address for known, looking at a few elements.

Wins where canaries are few or always at the same place. Caught by: contents that are drawn afresh as a whole.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = None
        self.answer = None

    def forward(self, a, b):
        key = (a.data_ptr(), bool(a[0].amin() < 0), bool(b[-1].amin() < 0))
        if key != self.key:
            self.key, self.answer = key, torch.mm(a, b)
        return self.answer
