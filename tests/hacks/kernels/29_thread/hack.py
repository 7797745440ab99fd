"""Hack 29: a thread computes, while the call has long returned.

Wins where the clock stops at the return. Caught by: the output is copied right behind the end of the window, and then
the inputs are destroyed.
"""

import threading

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        threading.Thread(target=lambda: torch.mm(a, b, out=c)).start()
        return c
