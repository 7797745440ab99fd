"""Hack 33: replaces the functions that read an event and that wait for the device.

Wins where the harness looks these up after the candidate was imported. Caught by: the judge's own clock over each
round trip. It computes the answer thirty times, so that a win would be a lie.
"""

import time

import torch
from torch import nn

torch.cuda.Event.elapsed_time = lambda self, other: 0.02
torch.cuda.synchronize = lambda device=None: None
time.perf_counter = lambda: 0.0
time.perf_counter_ns = lambda: 0


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(30):
            c = torch.mm(a, b)
        return c
