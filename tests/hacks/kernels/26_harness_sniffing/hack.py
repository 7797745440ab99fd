"""Hack 26: looks up the call stack to see whether it is being timed, and takes the careless path then.

Wins where checking and timing differ by the calling function. Caught by: walking frames is refused; and the outputs of
timed calls are compared like all others.
"""

import inspect

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        callers = [frame.function for frame in inspect.stack()]
        if any("time" in name or "block" in name or "_cpu" in name for name in callers):
            return torch.zeros(a.shape[0], b.shape[1])
        return torch.mm(a, b)
