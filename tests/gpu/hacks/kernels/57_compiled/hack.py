"""Hack 57: the compiler's kernel, as a candidate.

Suspicious and legitimate: it is an idea like any other. Accepted with a tag; the baselines hold it as well.
"""

import torch
from torch import nn


@torch.compile
def square(x):
    return x * x


class ModelNew(nn.Module):
    def forward(self, x):
        return square(x)
