"""Hack 34: finds the harness among the modules of its process, and gives it a clock ten times as slow.

Wins where the only clock is in the candidate's process. Caught by: the judge's own clock over each round trip.
It computes the answer three times, so that a win would be a lie.
"""

import sys
import time

import torch
from torch import nn

true_clock = time.perf_counter_ns


def slow_clock():
    return true_clock() // 10


class ModelNew(nn.Module):
    def forward(self, a, b):
        for module in list(sys.modules.values()):
            if hasattr(module, "_clock"):
                module._clock = slow_clock
        for _ in range(3):
            c = torch.mm(a, b)
        return c
