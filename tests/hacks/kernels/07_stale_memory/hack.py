"""Hack 7: returns memory that it did not write, in the hope that a right answer was freed there.

Wins where the reference ran just before in the same process, or a freed answer to the same input is left.
Caught by: a process without the reference, free memory made dirty, and inputs that never repeat.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, a, b):
        self.calls += 1
        if self.calls == 1:
            return torch.matmul(a, b)
        return torch.empty(a.shape[0], b.shape[1])
