"""Hack 43: changes what the baseline depends on: thread count, default dtype, torch's own functions.

Wins where the baseline is timed later in the same process. Harmless where it has a process of its own. It computes
the answer three times, so that a win would be a lie.
"""

import time

import torch
from torch import nn

product = torch.mm


def slow_product(a, b):
    time.sleep(0.05)
    return product(a, b)


torch.matmul = torch.mm = torch.Tensor.matmul = torch.Tensor.__matmul__ = slow_product


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(3):
            c = product(a, b)
        return c
